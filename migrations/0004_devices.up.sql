-- What an executor tells of a GPU: who it is, how it reaches the others, and why it gets no work.

ALTER TABLE device
  ADD COLUMN uuid        text NOT NULL DEFAULT '',
  ADD COLUMN pci_bus_id  text NOT NULL DEFAULT '',
  ADD COLUMN quarantined boolean NOT NULL DEFAULT false,
  ADD COLUMN reason      text NOT NULL DEFAULT '',
  ADD COLUMN links       text NOT NULL DEFAULT '',
  ADD CONSTRAINT device_quarantined_has_reason CHECK (quarantined = (reason <> ''));
