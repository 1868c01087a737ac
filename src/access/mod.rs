//! Who may do what: tokens with scopes.
//!
//! This module owns the table `tokens`. It says what a caller may do; which status that is, the
//! HTTP layer knows.

pub mod ended;
pub mod scope;
pub mod token;
