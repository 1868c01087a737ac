//! Which Postgres binaries to use.

use std::{
    collections::HashSet,
    env, fs,
    path::{Path, PathBuf},
};

use super::{error::EmbeddedError, fetch, owner::Owner};

/// The oldest major version that is good enough.
pub(super) const OLDEST_MAJOR: u32 = 14;

/// The major version that is fetched for a new cluster.
const FETCHED_MAJOR: u32 = 17;

/// Where Postgres binaries may come from.
///
/// A copy that was fetched into the data folder by an earlier start is always
/// considered, after all else.
#[derive(Debug, Clone)]
pub struct BinarySearch {
    /// Folders that may hold `initdb`, `postgres` and `pg_ctl` side by side.
    /// Of those that do, the newest major version wins, then the first.
    pub folders: Vec<PathBuf>,
    /// Whether to fetch binaries if none are found: tens of megabytes, once,
    /// from the releases of `theseus-rs/postgresql-binaries` on GitHub.
    pub fetch: bool,
}

impl Default for BinarySearch {
    /// Every folder of `PATH`, the places where Debian, Red Hat and Homebrew
    /// packages put their versions, and fetching if all are empty.
    fn default() -> Self {
        let path = env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> = env::split_paths(&path)
            .filter(|folder| folder.is_absolute())
            .collect();
        for (parent, prefix) in [
            ("/usr/lib/postgresql", ""),
            ("/usr", "pgsql-"),
            ("/opt/homebrew/opt", "postgresql"),
            ("/usr/local/opt", "postgresql"),
        ] {
            folders.extend(bin_folders(Path::new(parent), prefix));
        }
        Self {
            folders,
            fetch: true,
        }
    }
}

impl BinarySearch {
    /// Every usable set of binaries there is, in order of preference.
    pub(super) async fn find(&self, data_dir: &Path, owner: &Owner) -> Vec<Binaries> {
        let fetched = bin_folders(&fetch::store(data_dir), "");
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for folder in self.folders.iter().chain(&fetched) {
            // The same files behind a link are not looked at twice.
            let Ok(postgres) = fs::canonicalize(folder.join("postgres")) else {
                continue;
            };
            if !seen.insert(postgres) {
                continue;
            }
            if let Some(binaries) = Binaries::probe(folder, owner).await {
                found.push(binaries);
            }
        }
        // Stable, so that equals keep the order of the folders.
        found.sort_by_key(|binaries| std::cmp::Reverse(binaries.major));
        found
    }

    /// Binaries for a new cluster, fetched if none were found.
    pub(super) async fn newest(
        &self,
        found: Vec<Binaries>,
        data_dir: &Path,
        owner: &Owner,
    ) -> Result<Binaries, EmbeddedError> {
        if let Some(newest) = found.into_iter().next() {
            return Ok(newest);
        }
        self.fetch(FETCHED_MAJOR, data_dir, owner)
            .await
            .map_err(|source| EmbeddedError::NoBinaries { source })
    }

    /// Binaries of exactly the major version that made the cluster, as no
    /// other can run it; fetched if none were found.
    pub(super) async fn for_cluster(
        &self,
        major: u32,
        cluster: &Path,
        found: Vec<Binaries>,
        data_dir: &Path,
        owner: &Owner,
    ) -> Result<Binaries, EmbeddedError> {
        let newest = found.first().map(|binaries| binaries.version.clone());
        if let Some(matching) = found.into_iter().find(|binaries| binaries.major == major) {
            return Ok(matching);
        }
        self.fetch(major, data_dir, owner)
            .await
            .map_err(|source| EmbeddedError::WrongBinaries {
                folder: cluster.to_path_buf(),
                cluster: major,
                found: newest,
                source,
            })
    }

    /// Fetches binaries, if that is allowed; without a reason if it is not.
    async fn fetch(
        &self,
        major: u32,
        data_dir: &Path,
        owner: &Owner,
    ) -> Result<Binaries, Option<Box<EmbeddedError>>> {
        if !self.fetch || major < OLDEST_MAJOR {
            return Err(None);
        }
        fetch::fetch(major, data_dir, owner)
            .await
            .map_err(|error| Some(Box::new(error)))
    }
}

/// A folder with the programs we need, known to run.
#[derive(Debug, Clone)]
pub(super) struct Binaries {
    folder: PathBuf,
    /// Such as "15.13".
    pub(super) version: String,
    pub(super) major: u32,
}

impl Binaries {
    /// Looks at a folder: the programs must be there, be executable by the
    /// user who will run them, and be new enough.
    pub(super) async fn probe(folder: &Path, owner: &Owner) -> Option<Self> {
        if !["initdb", "pg_ctl", "postgres"]
            .iter()
            .all(|name| folder.join(name).is_file())
        {
            return None;
        }
        let mut command = owner.command(folder.join("postgres"));
        command.arg("--version");
        let output = match tokio::process::Command::from(command).output().await {
            Ok(output) => output,
            Err(error) => {
                tracing::debug!(folder = %folder.display(), %error, "postgres does not run here");
                return None;
            }
        };
        let Some((version, major)) = parse_version(&String::from_utf8_lossy(&output.stdout)) else {
            tracing::debug!(folder = %folder.display(), ?output, "postgres tells no version here");
            return None;
        };
        if major < OLDEST_MAJOR {
            tracing::debug!(folder = %folder.display(), version, "postgres is too old here");
            return None;
        }
        Some(Self {
            folder: folder.to_path_buf(),
            version,
            major,
        })
    }

    pub(super) fn initdb(&self) -> PathBuf {
        self.folder.join("initdb")
    }

    pub(super) fn postgres(&self) -> PathBuf {
        self.folder.join("postgres")
    }

    pub(super) fn pg_ctl(&self) -> PathBuf {
        self.folder.join("pg_ctl")
    }
}

/// `<parent>/<prefix>*/bin`, in the order of their names.
fn bin_folders(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else {
        return Vec::new();
    };
    let mut folders: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path().join("bin"))
        .filter(|folder| folder.is_dir())
        .collect();
    folders.sort();
    folders
}

/// Version and major version from the likes of
/// `postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)` or `… 18beta1`.
fn parse_version(output: &str) -> Option<(String, u32)> {
    let (_, version) = output.split_once("(PostgreSQL) ")?;
    let version = version.split_whitespace().next()?;
    let digits = version
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(version.len());
    Some((version.to_owned(), version[..digits].parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_postgres_writes_them() {
        for (output, version, major) in [
            (
                "postgres (PostgreSQL) 15.13 (Debian 15.13-0+deb12u1)\n",
                "15.13",
                15,
            ),
            ("postgres (PostgreSQL) 17.5\n", "17.5", 17),
            ("postgres (PostgreSQL) 19devel\n", "19devel", 19),
            ("postgres (PostgreSQL) 9.6.24\n", "9.6.24", 9),
        ] {
            assert_eq!(parse_version(output), Some((version.to_owned(), major)));
        }
        assert_eq!(parse_version("busybox"), None);
    }
}
