//! Devices by name (Container Device Interface): vendors put files into `/etc/cdi` and `/var/run/cdi` that say what a container needs to
//! use each of their devices, and who makes a container names the devices.
//!
//! The rules are those of the interface's own library, which containerd and others use.

mod file;
mod registry;
mod apply;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use oci_spec::runtime::Spec;

/// Where vendors put their files; what is in the later folder comes before what is in the earlier one.
pub static FOLDERS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// Why a container cannot have the devices that it names.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("unresolvable CDI devices {}", .0.join(", "))]
    Unresolvable(Vec<String>),
    #[error("CDI device {device} needs {what}, which this runtime does not have")]
    Unsupported { device: String, what: &'static str },
    #[error("CDI device {device}: failed to stat CDI host device {path:?}: {source}")]
    Node {
        device: String,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("CDI device {device}: {path:?} is not a device")]
    NoDevice { device: String, path: PathBuf },
    #[error("CDI device {device}: {source}")]
    Build {
        device: String,
        #[source]
        source: oci_spec::OciSpecError,
    },
}

/// Gives the container the devices of these names.
pub(crate) fn inject(spec: &mut Spec, names: &[String]) -> Result<(), Error> {
    inject_from(&FOLDERS.map(Path::new), spec, names)
}

fn inject_from(folders: &[&Path], spec: &mut Spec, names: &[String]) -> Result<(), Error> {
    if names.is_empty() {
        return Ok(());
    }
    // Read anew for each container: vendors write files while the node runs, and few containers have devices.
    let registry = registry::Registry::read(folders);
    for (device, edits) in registry.resolve(names)? {
        apply::apply(spec, &device, edits)?;
    }
    Ok(())
}
