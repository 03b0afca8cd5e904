//! The machine's manager of services.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// As sd_booted(3) finds out.
pub fn is_running() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

pub fn call(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("systemctl").args(arguments).stdin(Stdio::null()).output().context("run systemctl")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "systemctl {}: {}", arguments.join(" "), said.trim());
    Ok(())
}
