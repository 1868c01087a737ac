//! The cases, each a module that gives its figures.

pub(crate) mod durability;
pub(crate) mod engine;
pub(crate) mod fan_out;
pub(crate) mod growth;
pub(crate) mod import;
pub(crate) mod ingest_batched;
pub(crate) mod ingest_many_books;
pub(crate) mod ingest_naive;
pub(crate) mod ingest_single;
pub(crate) mod latency;
pub(crate) mod many_streams;
pub(crate) mod memory;
pub(crate) mod plans;
pub(crate) mod recount;
pub(crate) mod resume_horizon;
pub(crate) mod resume_storm;
