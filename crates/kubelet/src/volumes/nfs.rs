//! `nfs`: a folder of a server. The node's own `mount` command does it, as its helpers know names, versions and options.

use std::path::Path;

use futures::FutureExt;
use k8s_openapi::api::core::v1::NFSVolumeSource;

use super::folders::{is_safe_name, make_folder};
use super::{Error, Problem, Request, Type, Volume, blocking, filesystem};

pub(super) static TYPE: Type = Type {
    is: |volume| volume.nfs.is_some(),
    mount: |request| {
        async move {
            let source = request.volume.nfs.clone().unwrap_or_default();
            mount(&request, &request.volume.name, &source, false, &[]).await
        }
        .boxed()
    },
};

const PLUGIN: &str = "kubernetes.io~nfs";

pub(super) async fn mount(
    request: &Request<'_>,
    name: &str,
    source: &NFSVolumeSource,
    read_only: bool,
    options: &[String],
) -> Result<Volume, Problem> {
    if !is_safe_name(name) {
        return Err(Error::InvalidName.into());
    }
    let read_only = read_only || source.read_only.unwrap_or(false);
    let target = request.folders.volume(request.uid(), PLUGIN, name);
    let path = target.clone();
    let there = blocking(move || {
        make_folder(&path)?;
        linux::volume_mount::is_mount_point(&path)
    });
    if !there.await? {
        filesystem::mount(arguments(source, &target, read_only, options)).await.map_err(Error::from)?;
    }
    Ok(Volume::Path { path: target, read_only, relabel: false })
}

fn arguments(source: &NFSVolumeSource, target: &Path, read_only: bool, options: &[String]) -> Vec<String> {
    let host = if source.server.contains(':') && !source.server.starts_with('[') {
        format!("[{}]", source.server)
    } else {
        source.server.clone()
    };
    let mut all = options.to_vec();
    if read_only && !all.iter().any(|option| option == "ro") {
        all.push("ro".into());
    }
    let mut arguments = vec!["-t".to_owned(), "nfs".to_owned()];
    if !all.is_empty() {
        arguments.extend(["-o".to_owned(), all.join(",")]);
    }
    // What stands after `--` is never read as an option, whatever the server is called.
    arguments.extend(["--".to_owned(), format!("{host}:{}", source.path), target.to_string_lossy().into_owned()]);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_mount_is_told() {
        let source = NFSVolumeSource { server: "fd00::1".into(), path: "/export".into(), read_only: None };
        let plain = arguments(&source, Path::new("/target"), false, &[]);
        assert_eq!(plain, ["-t", "nfs", "--", "[fd00::1]:/export", "/target"]);
        let source = NFSVolumeSource { server: "nfs.example".into(), ..source };
        let all = arguments(&source, Path::new("/target"), true, &["vers=4.2".into(), "hard".into()]);
        assert_eq!(all, ["-t", "nfs", "-o", "vers=4.2,hard,ro", "--", "nfs.example:/export", "/target"]);
    }
}
