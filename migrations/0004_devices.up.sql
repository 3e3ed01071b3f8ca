-- What an executor reports of a GPU: its identity, its links to the other GPUs, and why it is quarantined.

ALTER TABLE device
  ADD COLUMN uuid        text NOT NULL DEFAULT '',
  ADD COLUMN pci_bus_id  text NOT NULL DEFAULT '',
  ADD COLUMN quarantined boolean NOT NULL DEFAULT false,
  ADD COLUMN reason      text NOT NULL DEFAULT '',
  ADD COLUMN links       text NOT NULL DEFAULT '',
  ADD CONSTRAINT device_quarantined_has_reason CHECK (quarantined = (reason <> ''));
