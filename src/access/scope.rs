//! What a caller may do, and with which books.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::time::Timestamp;

/// A right that a token gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Everything, with every book.
    Admin,
    /// Settings and tokens of the books; includes the other two.
    Manage,
    /// Post clicks.
    Write,
    /// Read counts and follow the stream.
    Read,
}

impl Scope {
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Manage => "manage",
            Self::Write => "write",
            Self::Read => "read",
        }
    }

    /// The inverse of [`Scope::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Admin, Self::Manage, Self::Write, Self::Read]
            .into_iter()
            .find(|scope| scope.as_str() == text)
    }

    /// Those of `names` that are known; one that this version does not know gives nothing.
    pub(super) fn parse_all(names: &[String]) -> Vec<Self> {
        names.iter().filter_map(|name| Self::parse(name)).collect()
    }

    fn includes(self, other: Self) -> bool {
        match self {
            Self::Admin => true,
            Self::Manage => other != Self::Admin,
            Self::Write | Self::Read => self == other,
        }
    }
}

/// Who calls: what a valid token, or a session of it, stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The token's id; `None` for the admin token of the configuration, which cannot be revoked.
    pub token: Option<Uuid>,
    /// The session's id, where it was a session that was shown.
    pub session: Option<Uuid>,
    /// What it gives.
    pub scopes: Vec<Scope>,
    /// With which books; `None`: all.
    pub books: Option<Vec<Uuid>>,
    /// When it ends by itself.
    pub expires_at: Option<Timestamp>,
    /// When the token ends by itself; of a session, that is the token that it was opened with.
    pub token_expires_at: Option<Timestamp>,
}

/// How a deed is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// It may be done.
    Granted,
    /// The caller may know of the book, but not do this.
    Forbidden,
    /// The caller may not even know that the book exists.
    Hidden,
}

impl Caller {
    /// A caller that may do everything.
    #[must_use]
    pub fn admin() -> Self {
        Self {
            token: None,
            session: None,
            scopes: vec![Scope::Admin],
            books: None,
            expires_at: None,
            token_expires_at: None,
        }
    }

    /// Whether it may do everything.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.scopes.contains(&Scope::Admin)
    }

    /// The books that it may know of; `None`: all.
    #[must_use]
    pub fn sees(&self) -> Option<&[Uuid]> {
        if self.is_admin() {
            None
        } else if self.scopes.is_empty() {
            Some(&[])
        } else {
            self.books.as_deref()
        }
    }

    /// Whether it may do with `book` what needs `scope`.
    #[must_use]
    pub fn may(&self, scope: Scope, book: Uuid) -> Judgement {
        if self.is_admin() {
            return Judgement::Granted;
        }
        let among = |books: &Vec<Uuid>| books.contains(&book);
        if self.scopes.is_empty() || !self.books.as_ref().is_none_or(among) {
            Judgement::Hidden
        } else if self.scopes.iter().any(|mine| mine.includes(scope)) {
            Judgement::Granted
        } else {
            Judgement::Forbidden
        }
    }

    /// Whether it may give `scopes` for `books` (`None`: all) to somebody else.
    #[must_use]
    pub fn may_give(&self, scopes: &[Scope], books: Option<&[Uuid]>) -> bool {
        if self.is_admin() {
            return true;
        }
        let manages = |book: &Uuid| self.may(Scope::Manage, *book) == Judgement::Granted;
        let all_mine = match books {
            Some(books) => books.iter().all(manages),
            None => self.books.is_none() && self.scopes.contains(&Scope::Manage),
        };
        all_mine && !scopes.contains(&Scope::Admin)
    }

    /// When a token that it makes with `scopes` ends at the latest. Nothing outlives the token that
    /// stands behind it. A session is left behind only by what merely writes or reads: the key in a
    /// book's pages and the link to its dashboard are made in a browser, and stay when it has long
    /// logged out, but no browser gets a way to change things that lasts longer than its login.
    #[must_use]
    pub fn gives_until(&self, scopes: &[Scope]) -> Option<Timestamp> {
        let lasting = |scope: &Scope| matches!(scope, Scope::Write | Scope::Read);
        if scopes.iter().all(lasting) {
            self.token_expires_at
        } else {
            self.expires_at
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(scopes: &[Scope], books: Option<&[Uuid]>) -> Caller {
        Caller {
            token: Some(Uuid::nil()),
            session: None,
            scopes: scopes.to_vec(),
            books: books.map(<[Uuid]>::to_vec),
            expires_at: None,
            token_expires_at: None,
        }
    }

    #[test]
    fn hidden_is_not_forbidden() {
        let (mine, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let reader = caller(&[Scope::Read], Some(&[mine]));
        assert_eq!(reader.may(Scope::Read, mine), Judgement::Granted);
        assert_eq!(reader.may(Scope::Write, mine), Judgement::Forbidden);
        assert_eq!(reader.may(Scope::Read, other), Judgement::Hidden);
        let manager = caller(&[Scope::Manage], None);
        assert_eq!(manager.may(Scope::Write, other), Judgement::Granted);
        assert!(manager.may_give(&[Scope::Read], None));
        assert!(!manager.may_give(&[Scope::Admin], None));
        let one = caller(&[Scope::Manage], Some(&[mine]));
        assert!(one.may_give(&[Scope::Manage], Some(&[mine])));
        assert!(!one.may_give(&[Scope::Read], Some(&[mine, other])));
        assert!(!one.may_give(&[Scope::Read], None));
        assert!(!reader.may_give(&[Scope::Read], Some(&[mine])));
    }
}
