-- The database of the Prefect server; once, by a superuser, with the password in PREFECT_PASSWORD: psql --file prefect.sql
-- Prefect makes and migrates its own tables, so its role owns the database; it has no business in the ledger's.
\set ON_ERROR_STOP on
\getenv password PREFECT_PASSWORD
CREATE ROLE prefect LOGIN PASSWORD :'password';
CREATE DATABASE prefect OWNER prefect;
REVOKE CONNECT, TEMPORARY ON DATABASE prefect FROM PUBLIC;
