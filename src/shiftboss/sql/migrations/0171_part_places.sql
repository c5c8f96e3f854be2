-- Which part of its run a part is: a batch that is sent again because its answer was lost adds nothing twice.
ALTER TABLE shiftboss.parts ADD COLUMN IF NOT EXISTS place int;
