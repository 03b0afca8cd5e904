//! `local` persistent volumes: a folder of this node, bound into the pod's folder so that its use can be seen and ended.

use std::io;
use std::path::{Path, PathBuf};

use super::folders::{is_safe_name, make_folder};
use super::{Problem, Request, Volume, blocking, empty_dir, ownership};

const PLUGIN: &str = "kubernetes.io~local-volume";

pub(super) async fn mount(request: &Request<'_>, name: &str, source: &str, read_only: bool) -> Result<Volume, Problem> {
    if source.split('/').any(|part| part == "..") || !is_safe_name(name) {
        return Err(Problem::SetUp(format!("invalid path: {source} must not contain '..'")));
    }
    let initialization = |text: String| {
        Problem::Message(format!("MountVolume.NewMounter initialization failed for volume {name:?} : {text}"))
    };
    match std::fs::metadata(source) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(initialization(format!("path {source:?} is not a directory"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(initialization(format!("path {source:?} does not exist")));
        }
        Err(error) => return Err(initialization(error.to_string())),
    }
    let target = request.folders.volume(request.uid(), PLUGIN, name);
    let mark = request.folders.plugin(request.uid(), PLUGIN, name).join("ready");
    let (from, to, pod) = (PathBuf::from(source), target.clone(), request.pod.clone());
    blocking(move || {
        if mark.exists() && linux::volume_mount::is_mount_point(&to)? {
            return Ok(());
        }
        bind(&from, &to)?;
        let group = ownership::fs_group(&pod);
        if !read_only && !ownership::may_skip(&pod, &to, group, read_only)? {
            ownership::give(&to, group, read_only)?;
        }
        empty_dir::mark_ready(&mark)
    })
    .await
    .map_err(|error| Problem::SetUp(error.to_string()))?;
    Ok(Volume::Path { path: target, read_only })
}

fn bind(from: &Path, to: &Path) -> io::Result<()> {
    make_folder(to)?;
    match linux::volume_mount::is_mount_point(to)? {
        true => Ok(()),
        false => linux::volume_mount::bind_recursive(from, to),
    }
}
