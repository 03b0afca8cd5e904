//! The ingress on real sockets of this machine, with an API of a few maps and backends of our own.

mod world;
mod backend;
mod client;

mod requests;
mod annotations;
mod protocols;
mod encrypted;
mod hostile;
mod endpoints;
mod api;
