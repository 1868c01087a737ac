//! The plug, pulled: what a power cut does to the server, for showing and trying what follows.

use std::{
    fs,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use tokio::{process::Command, time::sleep};

use super::{error::EmbeddedError, orphan};

/// How long the kernel may take to end what was killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Kills the postmaster of `cluster` and all its children, and returns when it is gone.
pub(super) async fn pull(cluster: &Path) -> Result<(), EmbeddedError> {
    let Some(postmaster) = orphan::postmaster(cluster) else {
        return Ok(());
    };
    // Held first, so that it makes no child while its children are looked up.
    signal("STOP", &[postmaster]).await?;
    // Whatever has the number now, if it had ended before.
    if orphan::postmaster(cluster) != Some(postmaster) {
        return signal("CONT", &[postmaster]).await;
    }
    let found = children(postmaster).await;
    let mut doomed = found.as_deref().unwrap_or_default().to_vec();
    doomed.push(postmaster);
    signal("KILL", &doomed).await?;
    found?;
    let killed = Instant::now();
    while orphan::postmaster(cluster).is_some() {
        if killed.elapsed() > PATIENCE {
            return Err(EmbeddedError::OrphanStays {
                pid: postmaster,
                folder: cluster.to_path_buf(),
                output: "it was killed and is still there".to_owned(),
            });
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// By the shell, whose `kill` is everywhere. One that has ended meanwhile is no failure.
async fn signal(signal: &str, pids: &[u32]) -> Result<(), EmbeddedError> {
    let shell = Path::new("/bin/sh");
    let mut command = Command::new(shell);
    command.args(["-c", "kill \"$@\"", "sh", &format!("-{signal}")]);
    command.args(pids.iter().map(u32::to_string));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let sent = command.stderr(Stdio::null()).status().await;
    sent.map(|_| ()).map_err(EmbeddedError::run(shell))
}

/// The children of a process.
async fn children(parent: u32) -> Result<Vec<u32>, EmbeddedError> {
    let processes = if Path::new("/proc/self/stat").exists() {
        processes_of_linux()
    } else {
        let ps = Path::new("ps");
        let mut command = Command::new(ps);
        command
            .args(["-A", "-o", "pid=,ppid="])
            .stdin(Stdio::null());
        let listed = command.output().await.map_err(EmbeddedError::run(ps))?;
        parse_ps(&String::from_utf8_lossy(&listed.stdout))
    };
    let theirs = processes.into_iter().filter(|(_, of)| *of == parent);
    Ok(theirs.map(|(pid, _)| pid).collect())
}

/// Every process, with its parent.
fn processes_of_linux() -> Vec<(u32, u32)> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = processes.filter_map(|process| fs::read(process.path().join("stat")).ok());
    stats.filter_map(|stat| parse_stat(&stat)).collect()
}

/// Process id and parent's of `/proc/…/stat`, in which the name between them may hold anything.
fn parse_stat(stat: &[u8]) -> Option<(u32, u32)> {
    let stat = String::from_utf8_lossy(stat);
    let (pid, _) = stat.split_once(' ')?;
    let (_, after_name) = stat.rsplit_once(')')?;
    let parent = after_name.split_whitespace().nth(1)?;
    Some((pid.parse().ok()?, parent.parse().ok()?))
}

fn parse_ps(listed: &str) -> Vec<(u32, u32)> {
    let lines = listed.lines().map(str::split_whitespace);
    let pairs = lines.filter_map(|mut words| {
        let pid = words.next()?.parse().ok()?;
        Some((pid, words.next()?.parse().ok()?))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_read_with_their_parents() {
        let stat = b"4711 (a (strange) name) S 12 4711 4711 0 -1 4194560";
        assert_eq!(parse_stat(stat), Some((4711, 12)));
        assert_eq!(parse_stat(b"4711"), None);
        assert_eq!(
            parse_ps("    1     0\n 4711    12\nx\n"),
            [(1, 0), (4711, 12)]
        );
    }
}
