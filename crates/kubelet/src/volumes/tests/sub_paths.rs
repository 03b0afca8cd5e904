//! Parts of volumes, also while somebody tries to swap them.

use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::*;

/// A pod with one hostPath volume at `folder` and this one mount.
fn pod_with(folder: &Path, mount: Value) -> Pod {
    let mut mount = mount;
    mount["name"] = "v".into();
    mount["mountPath"] = "/m".into();
    let containers = json!([{"name": "main", "volumeMounts": [mount]}]);
    pod(json!([{"name": "v", "hostPath": {"path": folder}}]), json!({"containers": containers}))
}

async fn mounts(node: &Node, pod: &Pod) -> Result<Vec<v1::Mount>, String> {
    let mounted = node.volumes.mount(pod, &CancellationToken::new()).await.unwrap();
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let environment = [("POD".to_owned(), "web-0".to_owned()), ("UP".to_owned(), "..".to_owned())];
    let made = node.volumes.container_mounts(pod, container, &mounted, &environment).await;
    made.map_err(|error| error.to_string())
}

#[test]
fn parts_of_volumes_are_found_or_made() {
    on_node("sub-path", async |node| {
        let folder = node.folder.0.join("data");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o1770)).unwrap();
        fs::write(folder.join("file"), "content").unwrap();
        let whole =
            mounts(&node, &pod_with(&folder, json!({"readOnly": true, "recursiveReadOnly": "Enabled"}))).await.unwrap();
        assert_eq!(whole[0].host_path, folder.to_str().unwrap());
        assert!(whole[0].readonly && whole[0].recursive_read_only);
        let file = mounts(&node, &pod_with(&folder, json!({"subPath": "file"}))).await.unwrap();
        let place = node.folder.0.join("kubelet/pods/uid-1/volume-subpaths/v/main/0");
        assert_eq!(file[0].host_path, place.to_str().unwrap());
        assert_eq!(fs::read_to_string(&place).unwrap(), "content");
        let made = mounts(&node, &pod_with(&folder, json!({"subPathExpr": "logs/$(POD)"}))).await.unwrap();
        assert_eq!(made[0].host_path, place.to_str().unwrap());
        assert_eq!(mode(&folder.join("logs/web-0")), 0o1770);
        fs::write(place.join("log"), "seen").unwrap();
        assert_eq!(fs::read_to_string(folder.join("logs/web-0/log")).unwrap(), "seen");
        // A second start of the container takes the place of the first bind.
        mounts(&node, &pod_with(&folder, json!({"subPathExpr": "logs/$(POD)"}))).await.unwrap();
        let there =
            linux::volume_mount::mount_points().unwrap().into_iter().filter(|mount| mount.path == place).count();
        assert_eq!(there, 1);
        let propagation = pod_with(&folder, json!({"mountPropagation": "HostToContainer"}));
        let propagation = mounts(&node, &propagation).await.unwrap()[0].propagation;
        assert_eq!(propagation, v1::MountPropagation::PropagationHostToContainer as i32);
        node.volumes.unmount("uid-1").await.unwrap();
        assert_eq!(fs::read_to_string(folder.join("logs/web-0/log")).unwrap(), "seen");
    });
}

#[test]
fn paths_that_lead_out_are_refused() {
    on_node("sub-path-out", async |node| {
        let (folder, outside) = (node.folder.0.join("data"), node.folder.0.join("outside"));
        fs::create_dir(&folder).unwrap();
        fs::create_dir(&outside).unwrap();
        symlink(&outside, folder.join("link")).unwrap();
        let refused = async |mount: Value| mounts(&node, &pod_with(&folder, mount)).await.unwrap_err();
        let absolute = refused(json!({"subPath": "/etc"})).await;
        assert_eq!(absolute, "error SubPath `/etc` must not be an absolute path");
        let climbing = refused(json!({"subPath": "a/../../b"})).await;
        assert_eq!(climbing, "unable to provision SubPath `a/../../b`: must not contain '..'");
        let expanded = refused(json!({"subPathExpr": "$(UP)/b"})).await;
        assert_eq!(expanded, "unable to provision SubPath `../b`: must not contain '..'");
        assert_eq!(refused(json!({"subPathExpr": "$(NONE)"})).await, "missing value for \"NONE\"");
        symlink("nowhere", folder.join("dangling")).unwrap();
        symlink("../outside", folder.join("climbing")).unwrap();
        let prepare = "failed to prepare subPath for volumeMount \"v\" of container \"main\"";
        let create = "failed to create subPath directory for volumeMount \"v\" of container \"main\"";
        for (path, expected) in [
            ("link", prepare),
            ("climbing", prepare),
            ("link/new", create),
            ("climbing/new/er", create),
            ("dangling", create),
        ] {
            assert_eq!(refused(json!({"subPath": path})).await, expected, "{path}");
        }
        // Links that stay in the volume are followed, by whatever path they name it.
        fs::create_dir(folder.join("kept")).unwrap();
        symlink("kept", folder.join("near")).unwrap();
        symlink(folder.join("kept"), folder.join("full")).unwrap();
        for path in ["near", "full", "near/made", "full/made/deep"] {
            mounts(&node, &pod_with(&folder, json!({"subPath": path}))).await.unwrap();
        }
        assert!(folder.join("kept/made/deep").is_dir());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    });
}

/// Ends the swapping also when the test fails; otherwise it would be waited for for ever.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How often the volume is looked at while it is swapped, and how often at least.
const SHOWN: u64 = 500;
const SHOWN_LEAST: u64 = 5;

#[test]
fn swapping_links_never_shows_the_outside() {
    on_node("sub-path-swap", async |node| {
        let (folder, outside) = (node.folder.0.join("data"), node.folder.0.join("outside"));
        fs::create_dir_all(folder.join("inside")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(folder.join("inside/mark"), "inside").unwrap();
        fs::write(outside.join("mark"), "outside").unwrap();
        symlink(&outside, folder.join("hostile")).unwrap();
        let stop = AtomicBool::new(false);
        let (swapped, shown) = std::thread::scope(|scope| {
            let swapper = scope.spawn(|| {
                let mut swapped = 0u64;
                let (inside, hostile) = (folder.join("inside"), folder.join("hostile"));
                while !stop.load(Ordering::Relaxed) {
                    let exchange = rustix::fs::RenameFlags::EXCHANGE;
                    let here = rustix::fs::CWD;
                    rustix::fs::renameat_with(here, &inside, here, &hostile, exchange).unwrap();
                    swapped += 1;
                }
                swapped
            });
            let ending = Ending(&stop);
            let place = node.folder.0.join("kubelet/pods/uid-1/volume-subpaths/v/main/0");
            let mut shown = 0;
            let begun = std::time::Instant::now();
            while shown < SHOWN && begun.elapsed() < Duration::from_secs(30) {
                if sub_path::prepare(&folder, Path::new("inside"), &place).is_ok() {
                    match fs::read_to_string(place.join("mark")) {
                        Ok(mark) => assert_eq!(mark, "inside"),
                        // Another name for the inside, `inside/<path of the outside>`, may have been made as an empty folder.
                        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
                    }
                    shown += 1;
                }
            }
            drop(ending);
            (swapper.join().unwrap(), shown)
        });
        // A busy machine gets less far in the time; fewer rounds prove less, and show nothing false.
        assert!(swapped >= SHOWN_LEAST && shown >= SHOWN_LEAST, "{swapped} swaps, {shown} shown");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "nothing was made outside");
        node.volumes.unmount("uid-1").await.unwrap();
        assert_eq!(fs::read_to_string(outside.join("mark")).unwrap(), "outside");
    });
}
