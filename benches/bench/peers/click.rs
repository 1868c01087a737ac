//! A click as a plain handler takes it.

use serde::{Deserialize, Serialize};

/// What may stand in it; nothing is checked.
#[derive(Deserialize)]
pub(crate) struct Click {
    pub(crate) page: String,
    pub(crate) at: Option<i64>,
    pub(crate) visitor: Option<String>,
    pub(crate) referrer: Option<String>,
    pub(crate) source: Option<String>,
}

/// What is answered.
#[derive(Serialize)]
pub(crate) struct Taken {
    pub(crate) ok: bool,
}
