ALTER TABLE device
  DROP COLUMN uuid, DROP COLUMN pci_bus_id, DROP COLUMN quarantined, DROP COLUMN reason, DROP COLUMN links;
