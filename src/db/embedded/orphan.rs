//! What an earlier run that was killed may have left: a server that lives on,
//! or the traces of one that does not.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
    process::Command,
};

use super::{
    binaries::Binaries,
    error::{EmbeddedError, last_lines},
    folder,
    owner::Owner,
};

/// What is known about the process that `postmaster.pid` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Occupant {
    /// There is no such process.
    Gone,
    /// A postmaster that runs on this very cluster.
    Postmaster,
    /// Something else that happens to have that id now.
    Stranger,
    /// A postmaster, and we cannot tell of which cluster.
    Unclear,
}

/// Makes way for a new postmaster: stops the one of an earlier run if it still
/// lives, and removes a `postmaster.pid` that would stop Postgres for no good
/// reason. Gives whether it is certain that no server runs on the cluster.
///
/// We hold the data folder's lock, so that whatever runs is without a parent.
pub(super) async fn clear(
    cluster: &Path,
    binaries: &Binaries,
    owner: &Owner,
) -> Result<bool, EmbeddedError> {
    let path = cluster.join("postmaster.pid");
    let content = match fs::read_to_string(&path) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(EmbeddedError::file("read", &path)(error)),
    };
    let Some(pid) = parse_pid(&content) else {
        // Empty, as a power cut may leave it; Postgres would not start.
        folder::remove_file(&path)?;
        return Ok(true);
    };
    match occupant(pid, cluster) {
        // Postgres sees so itself, and first uses what the file says to make
        // sure that no orphaned backend is left.
        Occupant::Gone => Ok(true),
        Occupant::Postmaster => stop(pid, cluster, binaries, owner).await.map(|()| true),
        Occupant::Stranger => {
            // Postgres would take any process of the same user for a
            // postmaster. Backends that are still about are found without the
            // file too, by the shared memory they hold.
            tracing::info!(
                pid,
                "the process id in a left over postmaster.pid is another's now"
            );
            folder::remove_file(&path)?;
            Ok(true)
        }
        // Postgres is in a better position to judge.
        Occupant::Unclear => Ok(false),
    }
}

/// The process id in `postmaster.pid`, which is negative for a server in
/// single-user mode.
fn parse_pid(content: &str) -> Option<u32> {
    let pid: i32 = content.lines().next()?.trim().parse().ok()?;
    Some(pid.unsigned_abs()).filter(|pid| *pid != 0)
}

async fn stop(
    pid: u32,
    cluster: &Path,
    binaries: &Binaries,
    owner: &Owner,
) -> Result<(), EmbeddedError> {
    tracing::info!(pid, "stopping a postgres that outlived an earlier run");
    let mut complaint = Vec::new();
    for (mode, seconds) in [("fast", "30"), ("immediate", "10")] {
        let pg_ctl = binaries.pg_ctl();
        let mut command = owner.command(&pg_ctl);
        command
            .arg("stop")
            .arg("-D")
            .arg(cluster)
            .args(["-m", mode, "-w", "-t", seconds]);
        let output = tokio::process::Command::from(command)
            .output()
            .await
            .map_err(EmbeddedError::run(&pg_ctl))?;
        // It may also have ended by itself just before.
        if output.status.success() || occupant(pid, cluster) != Occupant::Postmaster {
            return Ok(());
        }
        complaint = output.stderr;
    }
    Err(EmbeddedError::OrphanStays {
        pid,
        folder: cluster.to_path_buf(),
        output: last_lines(&complaint),
    })
}

/// The postmaster that runs on `cluster`, if one does.
pub(super) fn postmaster(cluster: &Path) -> Option<u32> {
    let content = fs::read_to_string(cluster.join("postmaster.pid")).ok()?;
    parse_pid(&content).filter(|pid| occupant(*pid, cluster) == Occupant::Postmaster)
}

fn occupant(pid: u32, cluster: &Path) -> Occupant {
    command_line(pid, cluster).map_or(Occupant::Gone, |arguments| judge(&arguments, cluster))
}

/// Judges a process by its command line. A postmaster keeps the one that it
/// was started with, which for ours names the cluster by its canonical path;
/// its children have a title such as "postgres: checkpointer" instead.
fn judge(arguments: &[OsString], cluster: &Path) -> Occupant {
    let program = arguments
        .first()
        .and_then(|program| Path::new(program).file_name());
    if program != Some(OsStr::new("postgres")) && program != Some(OsStr::new("postmaster")) {
        return Occupant::Stranger;
    }
    let data_folder = arguments
        .iter()
        .position(|argument| argument == "-D")
        .and_then(|option| arguments.get(option + 1))
        .map(Path::new)
        .filter(|folder| folder.is_absolute());
    match data_folder.map(fs::canonicalize) {
        Some(Ok(folder)) if folder == cluster => Occupant::Postmaster,
        Some(Ok(_)) => Occupant::Stranger,
        Some(Err(_)) | None => Occupant::Unclear,
    }
}

/// The command line of a process, or `None` if there is no such process. One
/// that has ended but was not waited for yet has an empty one.
fn command_line(pid: u32, cluster: &Path) -> Option<Vec<OsString>> {
    if Path::new("/proc/self/cmdline").exists() {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let arguments = line
            .split(|byte| *byte == 0)
            .filter(|argument| !argument.is_empty());
        return Some(
            arguments
                .map(|argument| OsString::from_vec(argument.to_vec()))
                .collect(),
        );
    }
    let output = Command::new("ps")
        .args(["-ww", "-o", "command=", "-p", &pid.to_string()])
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| split_ps(&output.stdout, cluster))
}

/// Takes apart what `ps` shows, as far as [`judge`] needs it: paths may have
/// blanks in them, so that only the options we expect can be made out.
fn split_ps(line: &[u8], cluster: &Path) -> Vec<OsString> {
    let line = String::from_utf8_lossy(line);
    let program = line.split(" -").next().unwrap_or_default().trim();
    let ours = format!(
        " -D {} ",
        String::from_utf8_lossy(cluster.as_os_str().as_bytes())
    );
    let mut arguments = vec![program.into()];
    if line.contains(&ours) {
        arguments.extend(["-D".into(), cluster.into()]);
    }
    arguments
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn judged(arguments: &[&str], cluster: &Path) -> Occupant {
        judge(
            &arguments.iter().map(OsString::from).collect::<Vec<_>>(),
            cluster,
        )
    }

    #[test]
    fn only_a_postmaster_of_this_cluster_is_one() {
        let cluster = &fs::canonicalize(std::env::temp_dir()).unwrap();
        let path = cluster.to_str().unwrap();
        let postgres = "/usr/lib/postgresql/15/bin/postgres";
        assert_eq!(
            judged(&[postgres, "-D", path, "-c", "jit=off"], cluster),
            Occupant::Postmaster
        );
        assert_eq!(judged(&[postgres, "-D", "/"], cluster), Occupant::Stranger);
        assert_eq!(
            judged(&["postgres: checkpointer "], cluster),
            Occupant::Stranger
        );
        assert_eq!(
            judged(&["/usr/bin/vi", "-D", path], cluster),
            Occupant::Stranger
        );
        assert_eq!(judged(&[], cluster), Occupant::Stranger);
        assert_eq!(
            judged(&[postgres, "-D", "relative"], cluster),
            Occupant::Unclear
        );
        assert_eq!(judged(&[postgres], cluster), Occupant::Unclear);
    }

    #[test]
    fn the_output_of_ps_is_understood() {
        let cluster = Path::new("/Users/a b/Library/Application Support/pagetide/postgres");
        let line = format!(
            "/opt/my pg/bin/postgres -D {} -c jit=off\n",
            cluster.display()
        );
        assert_eq!(
            split_ps(line.as_bytes(), cluster),
            [
                OsStr::new("/opt/my pg/bin/postgres"),
                OsStr::new("-D"),
                cluster.as_os_str()
            ]
        );
        assert_eq!(split_ps(b"-zsh\n", cluster), [OsStr::new("-zsh")]);
    }

    #[test]
    fn process_ids_are_read_from_postmaster_pid() {
        assert_eq!(parse_pid("4711\n/var/lib/pagetide/postgres\n"), Some(4711));
        assert_eq!(parse_pid("-12\n"), Some(12));
        assert_eq!(parse_pid(""), None);
        assert_eq!(parse_pid("0\n"), None);
    }
}
