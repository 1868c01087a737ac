//! How many files and sockets a process may have open.

use std::process::Command;

use crate::Error;

/// Lets this process, and those that it starts from now on, have `needed` files open.
pub(crate) fn allow_open_files(needed: u64) -> Result<(), Error> {
    let (now, most) = open_files()?;
    if now >= needed {
        return Ok(());
    }
    if most < needed {
        return Err(format!(
            "{needed} open files are needed, and the system allows {most} at most"
        )
        .into());
    }
    let status = Command::new("prlimit")
        .args(["--pid", &std::process::id().to_string()])
        .arg(format!("--nofile={most}:{most}"))
        .status()?;
    if !status.success() {
        return Err("`prlimit` could not raise the number of open files".into());
    }
    Ok(())
}

/// What is allowed now, and what it can be raised to.
fn open_files() -> Result<(u64, u64), Error> {
    let text = std::fs::read_to_string("/proc/self/limits")?;
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max open files"));
    let mut fields = line.unwrap_or_default().split_whitespace();
    let mut limit = || -> Result<u64, Error> {
        match fields.next().ok_or("no open files in /proc/self/limits")? {
            "unlimited" => Ok(u64::MAX),
            number => Ok(number.parse()?),
        }
    };
    Ok((limit()?, limit()?))
}
