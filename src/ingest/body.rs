//! A request's body, cut into the texts of single clicks. No database.

use serde_json::value::RawValue;

/// Most clicks of one request.
pub const MAX_CLICKS: usize = 10_000;

/// How clicks stand in a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// One click, or an array of them.
    Json,
    /// One a line.
    Ndjson,
}

/// A body that holds no clicks at all.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BodyError {
    /// It is no JSON.
    #[error("the body is no JSON: {0}")]
    NotJson(String),
    /// It holds more than [`MAX_CLICKS`].
    #[error("a request holds at most {MAX_CLICKS} clicks")]
    TooMany,
}

/// The JSON texts of the single clicks. A line that is no JSON is rejected by itself.
pub(super) fn elements(form: Form, body: &[u8]) -> Result<Vec<&[u8]>, BodyError> {
    let not_json = |error: serde_json::Error| BodyError::NotJson(error.to_string());
    let elements: Vec<&[u8]> = match form {
        Form::Ndjson => {
            let lines = body.split(|byte| *byte == b'\n');
            let lines = lines.map(<[u8]>::trim_ascii);
            lines.filter(|line| !line.is_empty()).collect()
        }
        Form::Json if body.trim_ascii_start().starts_with(b"[") => {
            let list: Vec<&RawValue> = serde_json::from_slice(body).map_err(not_json)?;
            list.into_iter().map(|one| one.get().as_bytes()).collect()
        }
        Form::Json => {
            let one: &RawValue = serde_json::from_slice(body).map_err(not_json)?;
            vec![one.get().as_bytes()]
        }
    };
    if elements.len() > MAX_CLICKS {
        return Err(BodyError::TooMany);
    }
    Ok(elements)
}
