//! What the kernel offers, with the unsafe calls kept here: cgroups, mounts, namespaces, paths that cannot climb out.

pub mod cgroup;
pub mod chroot;
pub mod fd_passing;
pub mod file;
pub mod mount;
pub mod process;
pub mod program;
pub mod pty;
pub mod quota;
pub mod seccomp;
pub mod selinux;
pub mod capabilities;
pub mod idmap;
pub mod netns;
pub mod path;
pub mod sockets;
pub mod tree;
pub mod volume_mount;
