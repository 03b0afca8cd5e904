//! Paths of installed files, below the root of a file system.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::line::Line;
use super::unit;

pub struct Place {
    root: PathBuf,
}

impl Place {
    pub fn new(root: &Path) -> Place {
        Place { root: root.to_owned() }
    }

    /// Whether it is this machine's own file system.
    pub fn is_here(&self) -> bool {
        self.root == Path::new("/")
    }

    fn below(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// As the installed system calls it.
    pub fn program_inside(&self) -> PathBuf {
        "/usr/local/bin/knarr".into()
    }

    pub fn program(&self) -> PathBuf {
        self.below(self.program_inside())
    }

    pub fn kubectl(&self) -> PathBuf {
        self.below("/usr/local/bin/kubectl")
    }

    /// Whether a link leads to our program.
    pub fn is_own_link(&self, link: &Path) -> bool {
        let target = std::fs::read_link(link).unwrap_or_default();
        target == Path::new("knarr") || target == self.program_inside()
    }

    pub fn unit(&self, role: &str) -> PathBuf {
        self.below("/etc/systemd/system").join(unit::name(role))
    }

    pub fn settings(&self) -> PathBuf {
        self.below("/etc/knarr")
    }

    /// The service's environment.
    pub fn environment(&self, role: &str) -> PathBuf {
        self.settings().join(format!("{}.env", unit::stem(role)))
    }

    pub fn share(&self) -> PathBuf {
        self.below("/usr/local/share")
    }

    /// An agent that has joined knows its servers.
    pub fn has_joined(&self, line: &Line) -> bool {
        self.below(line.data_dir()).join("agent").is_dir()
    }

    /// There is the old file or the new one, never a part; and it is never readable for more than it should be.
    pub fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
        let write = || {
            let folder = path.parent().unwrap_or(Path::new("/"));
            std::fs::create_dir_all(folder)?;
            component_base::files::write_durably(path, bytes, mode)
        };
        write().with_context(|| format!("write {}", path.display()))
    }
}
