//! Who may do what: tokens with scopes, and sessions that stand for them.
//!
//! This module owns the tables `tokens` and `sessions`. It says what a caller may do; which status that is, the
//! HTTP layer knows.

pub mod ended;
pub mod scope;
mod secret;
pub mod session;
pub mod token;
