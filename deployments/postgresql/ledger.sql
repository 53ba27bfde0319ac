-- The database of the ledger; once, by a superuser, with the passwords in OWNER_PASSWORD and WRITER_PASSWORD: psql --file ledger.sql
-- `marginweave ledger create-tables --writer ledger_writer` then makes the tables as their owner and gives the writer INSERT and SELECT.
\set ON_ERROR_STOP on
\getenv owner_password OWNER_PASSWORD
\getenv writer_password WRITER_PASSWORD
CREATE ROLE ledger_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE ledger_writer LOGIN PASSWORD :'writer_password';
CREATE DATABASE ledger OWNER ledger_owner;
REVOKE CONNECT, TEMPORARY ON DATABASE ledger FROM PUBLIC;
GRANT CONNECT ON DATABASE ledger TO ledger_writer;
\connect ledger
ALTER SCHEMA public OWNER TO ledger_owner;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO ledger_writer;
