//! Where the beacon is served.

use std::str::FromStr;

/// Folders that are taken.
const TAKEN: [&str; 6] = ["v1", "assets", "badge", "books", "problems", "share"];

/// The path of a script that nothing else is served at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BeaconPath(String);

/// A text that is no such path.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a path such as /reading/tide.js: letters, digits, - and _, it ends in .js, and nothing else is \
     served there"
)]
pub struct NoBeaconPath;

impl BeaconPath {
    /// Where it is served in any case.
    pub const USUAL: &str = "/beacon.js";

    /// The path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for BeaconPath {
    fn default() -> Self {
        Self(Self::USUAL.to_owned())
    }
}

impl FromStr for BeaconPath {
    type Err = NoBeaconPath;

    fn from_str(text: &str) -> Result<Self, NoBeaconPath> {
        let plain = |part: &str| {
            let fine = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
            !part.is_empty() && part.bytes().all(fine)
        };
        let name = text.strip_prefix('/').and_then(|t| t.strip_suffix(".js"));
        let name = name.ok_or(NoBeaconPath)?;
        let folder = name.split_once('/').map(|(folder, _)| folder);
        let module = ["client", "client-state"].contains(&name);
        let taken = folder.is_some_and(|folder| TAKEN.contains(&folder)) || module;
        if taken || name.len() > 200 || !name.split('/').all(plain) {
            return Err(NoBeaconPath);
        }
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_scripts_that_nothing_else_is_served_at() {
        for fine in [
            "/beacon.js",
            "/t.js",
            "/reading/Tide_2-b.js",
            "/v1.js",
            "/v1x/a.js",
        ] {
            let path: BeaconPath = fine.parse().unwrap();
            assert_eq!(path.as_str(), fine);
        }
        for wrong in [
            "",
            "/",
            "/.js",
            "beacon.js",
            "/client-state.js",
            "//a.js",
            "/a/.js",
            "/a//b.js",
            "/a/../b.js",
            "/a.b.js",
            "/a",
            "/a.js/",
            "/a.js?b=c",
            "/a b.js",
            "/\u{e4}.js",
            "/{a}.js",
            "/v1/a.js",
            "/client.js",
            "/books/a.js",
            "https://a.example/b.js",
        ] {
            assert_eq!(wrong.parse::<BeaconPath>(), Err(NoBeaconPath), "{wrong}");
        }
    }
}
