-- Run once, by the superuser `postgres`, on an empty volume: two databases, each with a role of its own that owns it
-- and may nothing else. What takes over the bench reads no file of the database's machine, runs no program there, and
-- sees nothing of MLflow's; and the other way round. Passwords are read from the files of secrets.
\set ON_ERROR_STOP on
\set bench_password `cat /run/secrets/bench_password`
\set mlflow_password `cat /run/secrets/mlflow_password`
CREATE ROLE bench LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD :'bench_password';
CREATE ROLE mlflow LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD :'mlflow_password';
CREATE DATABASE bench OWNER bench;
CREATE DATABASE mlflow OWNER mlflow;
REVOKE ALL ON DATABASE bench, mlflow, postgres, template1 FROM PUBLIC;
