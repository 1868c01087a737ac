//! The user who runs Postgres: ourselves, or an unprivileged stand-in for root.

use std::{
    env,
    ffi::OsStr,
    fmt, fs, io,
    os::unix::{
        fs::{MetadataExt, lchown},
        process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
};

use tokio::net::UnixStream;

use super::error::EmbeddedError;

/// What the programs of Postgres get to see of our environment. Not the rest:
/// it may hold secrets, and settings such as `PGPORT` that would lead astray.
const PASSED_ON: [&str; 4] = ["PATH", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"];

/// The user who owns the cluster and runs every program of Postgres.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    name: Option<String>,
    uid: u32,
    gid: u32,
    /// We are root and have to become this user first.
    switch: bool,
}

impl Owner {
    /// Us, unless we are root, as whom Postgres refuses to run. Root takes
    /// whoever owns the cluster already, else `postgres`, else `nobody`.
    ///
    /// Names come from `/etc/passwd`, hence local users only: a machine that
    /// keeps its users elsewhere can give `DATABASE_URL` instead.
    pub(super) fn choose(cluster: &Path) -> Result<Self, EmbeddedError> {
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let named = |uid, gid, switch| Self {
            name: users(&passwd)
                .find(|user| user.uid == uid)
                .map(|user| user.name.to_owned()),
            uid,
            gid,
            switch,
        };

        let (uid, gid) = effective_ids()?;
        if uid != 0 {
            return Ok(named(uid, gid, false));
        }
        if let Ok(folder) = fs::metadata(cluster)
            && folder.uid() != 0
        {
            return Ok(named(folder.uid(), folder.gid(), true));
        }
        ["postgres", "nobody"]
            .iter()
            .find_map(|name| users(&passwd).find(|user| user.name == *name))
            .filter(|user| user.uid != 0)
            .map(|user| named(user.uid, user.gid, true))
            .ok_or(EmbeddedError::NoUnprivilegedUser)
    }

    pub(super) fn uid(&self) -> u32 {
        self.uid
    }

    /// Whether this is another user than the one we run as.
    pub(super) fn is_stand_in(&self) -> bool {
        self.switch
    }

    /// A command that runs as this user, cut off from our terminal, our
    /// working folder (which they may not be allowed to enter) and our
    /// environment.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir("/")
            .stdin(Stdio::null())
            .process_group(0)
            .env_clear()
            .envs(
                PASSED_ON
                    .iter()
                    .filter_map(|name| Some((name, env::var_os(name)?))),
            )
            // Messages are read by us too; macOS refuses to run without one.
            .env("LC_ALL", "C");
        if self.switch {
            // Root's supplementary groups go along with its uid.
            command.uid(self.uid).gid(self.gid);
        }
        command
    }

    /// Gives `path` to this user; of a symlink, the link itself.
    pub(super) fn take(&self, path: &Path) -> Result<(), EmbeddedError> {
        if self.switch {
            lchown(path, Some(self.uid), Some(self.gid))
                .map_err(EmbeddedError::file("change the owner of", path))?;
        }
        Ok(())
    }

    /// Refuses a cluster of another user: Postgres would, in fewer words.
    pub(super) fn ensure_owns(&self, cluster: &Path) -> Result<(), EmbeddedError> {
        let found = fs::metadata(cluster).map_err(EmbeddedError::file("read", cluster))?;
        if found.uid() == self.uid {
            return Ok(());
        }
        Err(EmbeddedError::ForeignCluster {
            folder: cluster.to_path_buf(),
            uid: found.uid(),
            user: self.to_string(),
        })
    }

    /// Refuses a folder that this user cannot get to, naming what is in the
    /// way. For ourselves there is nothing to check: we have been there.
    pub(super) async fn ensure_can_enter(&self, folder: &Path) -> Result<(), EmbeddedError> {
        if !self.switch || self.can_enter(folder).await? {
            return Ok(());
        }
        let way: Vec<&Path> = folder.ancestors().collect();
        let mut barrier = folder;
        for step in way.into_iter().rev() {
            if !self.can_enter(step).await? {
                barrier = step;
                break;
            }
        }
        Err(EmbeddedError::Unreachable {
            user: self.to_string(),
            folder: folder.to_path_buf(),
            barrier: barrier.to_path_buf(),
        })
    }

    /// Asks the kernel, by running a shell that does nothing in there: mode
    /// bits alone do not tell where access control lists have a say.
    async fn can_enter(&self, folder: &Path) -> Result<bool, EmbeddedError> {
        let shell = Path::new("/bin/sh");
        let mut command = self.command(shell);
        command.args(["-c", ":"]).current_dir(folder);
        match tokio::process::Command::from(command).status().await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
            Err(error) => Err(EmbeddedError::run(shell)(error)),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(formatter, "user {name}"),
            None => write!(formatter, "uid {}", self.uid),
        }
    }
}

/// Our effective user and group id, learnt as the peer of a socket to
/// ourselves: the standard library has no other portable way.
pub(super) fn effective_ids() -> Result<(u32, u32), EmbeddedError> {
    UnixStream::pair()
        .and_then(|(ours, _theirs)| ours.peer_cred())
        .map(|peer| (peer.uid(), peer.gid()))
        .map_err(EmbeddedError::file(
            "learn our user id from",
            Path::new("a socket pair"),
        ))
}

struct User<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
}

/// The users in the text of `/etc/passwd`; lines that make no sense are passed over.
fn users(passwd: &str) -> impl Iterator<Item = User<'_>> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(User { name, uid, gid })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_read_from_passwd() {
        let passwd = "# comment\nroot:x:0:0:root:/root:/bin/sh\n+::::::\nnobody:*:-2:-2::/:/bin/false\n\
                      postgres:x:101:104:PostgreSQL,,,:/var/lib/postgresql:/bin/bash\n";
        let read: Vec<_> = users(passwd)
            .map(|user| (user.name, user.uid, user.gid))
            .collect();
        assert_eq!(read, [("root", 0, 0), ("postgres", 101, 104)]);
    }
}
