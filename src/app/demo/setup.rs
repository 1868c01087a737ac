//! What the show needs of the server before it begins: the book, and tokens.

use serde_json::{Value, json};

use super::DemoError;
use super::courier::Courier;
use crate::demo::book;

/// Tokens for the book alone.
pub(super) struct Tokens {
    /// For the readers' back end.
    pub(super) write: String,
    /// For the pages of the book, which show it to everyone.
    pub(super) key: String,
    /// For the dashboard.
    pub(super) read: String,
}

/// Makes the book and its tokens.
pub(super) async fn set_up(courier: &Courier) -> Result<Tokens, DemoError> {
    let path = format!("/v1/books/{}", book::SLUG);
    courier.manage("PUT", &path, Some(&book::fields())).await?;
    let chapters = format!("{path}/chapters");
    let list = book::chapters();
    courier.manage("PUT", &chapters, Some(&list)).await?;
    Ok(Tokens {
        write: token(courier, "write", "the back end of the readers").await?,
        key: token(courier, "write", "the beacon in the pages").await?,
        read: token(courier, "read", "the dashboard on the stage").await?,
    })
}

async fn token(courier: &Courier, scope: &str, label: &str) -> Result<String, DemoError> {
    let new = json!({"books": [book::SLUG], "scopes": [scope], "label": label});
    let made = courier.manage("POST", "/v1/tokens", Some(&new)).await?;
    let token = made.get("token").and_then(Value::as_str);
    token.map(str::to_owned).ok_or(DemoError::Over)
}
