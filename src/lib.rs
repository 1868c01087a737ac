//! Pagetide counts the clicks of online books per page in event-time windows, in Postgres, and
//! streams every change to whoever follows a book.
//!
//! The way of a click is a straight line; read the modules in this order to follow it:
//!
//! ```text
//! http::clicks ─▶ ingest::admission ─▶ ingest::tier ─▶ ingest::lane ─▶ ingest::commit ─▶ (engine, frame, book::hot)
//!                                                                                │
//!                http::events ◀─ stream::follow ◀─ stream::feed ◀─ stream::hub
//! ```
//!
//! [`time`], [`calendar`], [`page`], [`click`], [`structure`], [`rollup`], [`book`], [`run`], [`frame`]
//! and [`checkpoint`] are the words of the field, as types. [`engine`] is pure. [`ingest`] writes,
//! [`job`] and [`runs`] feed it from a [`source`] or the log, [`stream`] and [`counts`] read, [`access`] says who may.
//! [`visitor`] names who brings no name. [`spool`] keeps what waits. [`db`] reaches Postgres, or brings one up. [`http`] is the only place
//! that knows axum, and [`app`] the only one that starts and stops things.

pub mod access;
pub mod app;
pub mod book;
pub mod bot;
pub mod calendar;
pub mod checkpoint;
pub mod click;
pub mod config;
pub mod counts;
pub mod db;
mod demo;
pub mod engine;
pub mod frame;
pub mod http;
pub mod ingest;
pub mod job;
mod memo;
pub mod network;
pub mod origin;
pub mod page;
pub mod rollup;
pub mod run;
pub mod runs;
pub mod source;
pub mod spool;
pub mod stream;
pub mod structure;
pub mod telemetry;
pub mod terminal;
pub mod time;
pub mod visitor;
