"""The journal: one row per step, appended before any action, read by everything that reports. SQLite and PostgreSQL."""
