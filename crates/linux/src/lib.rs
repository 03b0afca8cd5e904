//! What the kernel offers, with the unsafe calls kept here: cgroups, mounts, namespaces, paths that cannot climb out.

pub mod cgroup;
pub mod path;
pub mod tree;
pub mod volume_mount;
pub mod seccomp;
pub mod capabilities;
pub mod idmap;
