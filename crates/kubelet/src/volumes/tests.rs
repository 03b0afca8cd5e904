//! Volumes on real folders and mounts, each test with mounts of its own, and with an API that is a function.

mod sub_paths;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use crate::fake_api::FakeApi;

/// A folder of one test.
pub(crate) struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let unique = format!("kubelet-{name}-{}-{:08x}", std::process::id(), rand::random::<u32>());
        let path = std::env::temp_dir().join(unique);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that fails may leave mounts; nothing is removed through them.
        drop(linux::volume_mount::unmount_below(&self.0));
        drop(linux::tree::remove_tree(&self.0));
    }
}

pub(super) struct Node {
    folder: Folder,
    api: FakeApi,
    pub(super) volumes: Volumes,
}

fn csi(api: &FakeApi, root: &Path) -> Csi {
    let drivers = Arc::new(Drivers::new(api.client(), "node-1"));
    Csi::new(drivers, Arc::new(Health::new(0)), root, root, Clock::system())
}

/// Runs in a thread with mounts of its own, which end with it.
pub(super) fn on_node(name: &str, test: impl AsyncFnOnce(Node) + Send) {
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            linux::volume_mount::private_mounts().unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (folder, api) = (Folder::new(name), FakeApi::new());
                let objects = Objects::new(api.client());
                let root = folder.0.join("kubelet");
                let volumes = Volumes::with(objects, "node-1", &root, csi(&api, &root), Clock::system());
                test(Node { folder, api, volumes }).await;
            });
        });
        run.join().unwrap();
    });
}

/// A pod with these volumes, each mounted in its one container.
pub(super) fn pod(volumes: Value, spec: Value) -> Pod {
    let mounts: Vec<Value> =
        volumes.as_array().unwrap().iter().map(|volume| json!({"name": volume["name"], "mountPath": "/m"})).collect();
    let mut pod = json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "uid-1", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "volumeMounts": mounts}], "volumes": volumes},
    });
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    serde_json::from_value(pod).unwrap()
}

fn path(mounted: &Mounted, name: &str) -> PathBuf {
    match &mounted[name] {
        Volume::Path { path, .. } => path.clone(),
        other => panic!("{other:?} has no folder"),
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

async fn failure(node: &Node, volume: Value) -> String {
    node.volumes.mount(&pod(json!([volume]), json!({})), &CancellationToken::new()).await.unwrap_err().to_string()
}

#[test]
fn empty_dirs_live_as_long_as_the_pod() {
    on_node("empty-dir", async |node| {
        let volumes = json!([
            {"name": "disk", "emptyDir": {}},
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        ]);
        let pod = pod(volumes, json!({"securityContext": {"fsGroup": 4321}}));
        let mounted = node.volumes.mount(&pod, &CancellationToken::new()).await.unwrap();
        let (disk, memory) = (path(&mounted, "disk"), path(&mounted, "memory"));
        assert_eq!(disk, node.folder.0.join("kubelet/pods/uid-1/volumes/kubernetes.io~empty-dir/disk"));
        for (folder, expected) in [(&disk, 0o2777), (&memory, 0o3777)] {
            assert_eq!(mode(folder), expected);
            assert_eq!(fs::metadata(folder).unwrap().gid(), 4321);
        }
        fs::write(disk.join("file"), vec![7; 5000]).unwrap();
        fs::set_permissions(disk.join("file"), fs::Permissions::from_mode(0o400)).unwrap();
        assert!(fs::write(memory.join("file"), vec![7; 2 << 20]).is_err(), "more than the limit");
        node.volumes.mount(&pod, &CancellationToken::new()).await.unwrap();
        assert_eq!(mode(&disk.join("file")), 0o400, "a ready volume is left alone");
        let used = node.volumes.usage(&pod).await;
        let by_name = |name: &str| used.iter().find(|used| used.volume == name).unwrap().clone();
        assert!(by_name("disk").bytes >= 5000);
        assert_eq!((by_name("memory").limit, by_name("memory").in_memory), (Some(1 << 20), true));
        assert_eq!(node.volumes.uids(), ["uid-1"]);
        node.volumes.unmount("uid-1").await.unwrap();
        assert!(node.volumes.uids().is_empty());
        node.volumes.unmount("uid-1").await.unwrap();
    });
}

#[test]
fn memory_is_limited_by_the_pod_too() {
    on_node("memory", async |node| {
        let limits = json!([{
            "name": "main", "resources": {"limits": {"memory": "2Mi"}},
            "volumeMounts": [{"name": "memory", "mountPath": "/m"}],
        }]);
        let volumes = json!([{"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]);
        let pod = pod(volumes, json!({"containers": limits}));
        let memory = path(&node.volumes.mount(&pod, &CancellationToken::new()).await.unwrap(), "memory");
        fs::write(memory.join("fits"), vec![7; 1 << 20]).unwrap();
        assert!(fs::write(memory.join("more"), vec![7; 2 << 20]).is_err());
        node.volumes.unmount("uid-1").await.unwrap();
    });
}

#[test]
fn files_of_objects_follow_them() {
    on_node("files", async |node| {
        node.api.set("/api/v1/namespaces/default/configmaps/config", json!({"data": {"a": "1", "b": "2"}}));
        node.api.set("/api/v1/namespaces/default/secrets/keys", json!({"data": {"password": "aHVudGVyMg=="}}));
        let volumes = json!([
            {"name": "config", "configMap": {"name": "config", "items": [{"key": "a", "path": "deep/a", "mode": 0o400}]}},
            {"name": "whole", "configMap": {"name": "config", "defaultMode": 0o640}},
            {"name": "secret", "secret": {"secretName": "keys"}},
            {"name": "gone", "secret": {"secretName": "none", "optional": true}},
            {"name": "downward", "downwardAPI": {"items": [
                {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                {"path": "limit", "resourceFieldRef": {"containerName": "main", "resource": "requests.cpu"}},
            ]}},
        ]);
        node.api.set("/api/v1/nodes/node-1", json!({"status": {"allocatable": {"cpu": "1", "memory": "1Gi"}}}));
        let pod = pod(volumes, json!({}));
        let mounted = node.volumes.mount(&pod, &CancellationToken::new()).await.unwrap();
        let read = |volume: &str, file: &str| fs::read_to_string(path(&mounted, volume).join(file)).unwrap();
        assert_eq!(read("config", "deep/a"), "1");
        assert_eq!(mode(&path(&mounted, "config").join("deep/a")), 0o400);
        assert_eq!(mode(&path(&mounted, "whole").join("b")), 0o640);
        assert_eq!(read("secret", "password"), "hunter2");
        assert_eq!(read("downward", "labels"), "app=\"web\"");
        assert_eq!(read("downward", "limit"), "0");
        assert!(mounted.values().all(|volume| matches!(volume, Volume::Path { read_only: true, .. })));
        let of = |name: &str| linux::volume_mount::file_system_at(&path(&mounted, name)).unwrap();
        assert_eq!((of("secret").as_deref(), of("config")), (Some("tmpfs"), None));
        let mut changes = node.volumes.objects.changes();
        node.api.set("/api/v1/namespaces/default/configmaps/config", json!({"data": {"a": "new"}}));
        assert_eq!(changes.recv().await.unwrap(), "uid-1");
        node.volumes.mount(&pod, &CancellationToken::new()).await.unwrap();
        assert_eq!(read("config", "deep/a"), "new");
        assert!(!path(&mounted, "whole").join("b").exists());
        let mounts = linux::volume_mount::mount_points().unwrap();
        let twice = mounts.iter().filter(|mount| mount.path.ends_with("kubernetes.io~secret/secret")).count();
        assert_eq!(twice, 1, "mounted once only");
        node.volumes.unmount("uid-1").await.unwrap();
        assert!(node.volumes.uids().is_empty());
    });
}

#[test]
fn tokens_are_renewed_and_private() {
    on_node("tokens", async |node| {
        let source = json!({"sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ]});
        let volumes = json!([{"name": "access", "projected": source}]);
        let plain = pod(volumes.clone(), json!({}));
        let token = path(&node.volumes.mount(&plain, &CancellationToken::new()).await.unwrap(), "access").join("token");
        assert_eq!(fs::read_to_string(&token).unwrap(), "token-1");
        assert_eq!(mode(&token), 0o644);
        assert_eq!(fs::read_to_string(token.with_file_name("namespace")).unwrap(), "default");
        node.volumes.mount(&plain, &CancellationToken::new()).await.unwrap();
        assert_eq!(fs::read_to_string(&token).unwrap(), "token-1", "kept while it is young");
        let refresh = node.volumes.next_refresh(&plain, jiff::Timestamp::now()).unwrap();
        let wait = refresh.duration_since(jiff::Timestamp::now()).as_secs();
        assert!((2850..=2880).contains(&wait), "{wait}");
        node.volumes.unmount("uid-1").await.unwrap();
        assert_eq!(node.volumes.next_refresh(&plain, jiff::Timestamp::now()), None);
        let bundle = json!([{"clusterTrustBundle": {"name": "b", "path": "roots"}}]);
        let trusting = pod(json!([{"name": "v", "projected": {"sources": bundle}}]), json!({}));
        let long_ago = jiff::Timestamp::UNIX_EPOCH;
        let refresh = node.volumes.next_refresh(&trusting, long_ago).unwrap();
        assert_eq!(refresh.duration_since(long_ago).as_secs(), 60, "counted from the last look");

        node.api.set_tokens(60, false);
        let context = json!({"securityContext": {"fsGroup": 4321, "runAsUser": 1234}});
        let owned = pod(volumes, context);
        node.volumes.mount(&owned, &CancellationToken::new()).await.unwrap();
        assert_eq!(fs::read_to_string(&token).unwrap(), "token-2");
        assert_eq!(mode(&token), 0o640);
        let found = fs::metadata(&token).unwrap();
        assert_eq!((found.uid(), found.gid()), (1234, 4321));
        node.volumes.mount(&owned, &CancellationToken::new()).await.unwrap();
        assert_eq!(fs::read_to_string(&token).unwrap(), "token-3", "too old to be kept");
        node.api.set_tokens(60, true);
        node.volumes.mount(&owned, &CancellationToken::new()).await.unwrap();
        assert_eq!(
            fs::read_to_string(&token).unwrap(),
            "token-3",
            "a token that still holds is kept when none is given"
        );
        node.volumes.unmount("uid-1").await.unwrap();
        let error = node.volumes.mount(&owned, &CancellationToken::new()).await.unwrap_err().to_string();
        assert!(
            error.starts_with("MountVolume.SetUp failed for volume \"access\" : failed to fetch token: "),
            "{error}"
        );
        node.volumes.unmount("uid-1").await.unwrap();
    });
}

#[test]
fn certificates_wait_for_their_signer() {
    on_node("certificates", async |node| {
        let requests = "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests";
        let spec = json!({
            "signerName": "", "podName": "", "podUID": "", "serviceAccountName": "", "serviceAccountUID": "", "nodeName": "",
            "nodeUID": "", "stubPKCS10Request": "",
        });
        // The answer to a POST; the request that it makes has the same name.
        node.api.set(requests, json!({"spec": spec}));
        let made = format!("{requests}/podcertificaterequests");
        node.api.set("/api/v1/namespaces/default/serviceaccounts/default", json!({"metadata": {"uid": "s"}}));
        node.api.set("/api/v1/nodes/node-1", json!({"metadata": {"uid": "n"}}));
        node.api.set(&made, json!({"spec": spec}));
        let source = json!({"podCertificate": {
            "signerName": "example.com/mesh", "keyType": "ECDSAP256", "credentialBundlePath": "both", "keyPath": "key",
        }});
        let pod = pod(json!([{"name": "v", "projected": {"sources": [source]}}]), json!({}));
        let stop = CancellationToken::new();
        let mount = || node.volumes.mount(&pod, &stop);
        let error = mount().await.unwrap_err().to_string();
        assert_eq!(error, "MountVolume.SetUp failed for volume \"v\" : credential bundle is not issued yet");
        let now = jiff::Timestamp::now();
        let hours = |hours: i64| (now + jiff::SignedDuration::from_hours(hours)).to_string();
        let chain = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        let issued =
            json!({"type": "Issued", "status": "True", "reason": "R", "message": "", "lastTransitionTime": hours(0)});
        let status = json!({
            "conditions": [issued], "certificateChain": chain, "notBefore": hours(0), "beginRefreshAt": hours(12), "notAfter": hours(24),
        });
        node.api.set(&made, json!({"spec": spec, "status": status}));
        let folder = path(&mount().await.unwrap(), "v");
        let (both, key) = (folder.join("both"), folder.join("key"));
        let key = fs::read_to_string(key).unwrap();
        assert!(key.starts_with("-----BEGIN PRIVATE KEY-----"), "{key}");
        assert_eq!(fs::read_to_string(both).unwrap(), format!("{key}{chain}"));
        let posts = || node.api.requests().iter().filter(|line| line.starts_with("POST")).count();
        assert_eq!(posts(), 1);
        mount().await.unwrap();
        assert_eq!(posts(), 1, "kept while it is young");
        let wait = node.volumes.next_refresh(&pod, now).unwrap().duration_since(now).as_secs();
        assert!((12 * 3600..=12 * 3600 + 300).contains(&wait), "{wait}");
        node.volumes.unmount("uid-1").await.unwrap();
        assert_eq!(node.volumes.next_refresh(&pod, now), None);
    });
}

#[test]
fn failures_are_told_in_upstreams_words() {
    on_node("failures", async |node| {
        let set_up = |text: &str| format!("MountVolume.SetUp failed for volume \"v\" : {text}");
        let unprocessed = |text: &str| {
            format!(
                "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: {text}"
            )
        };
        node.api.set("/api/v1/namespaces/default/configmaps/config", json!({"data": {"a": "1"}}));
        let file = node.folder.0.join("file");
        fs::write(&file, "").unwrap();
        let claim = |name: &str, status: Value| {
            let path = format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}");
            node.api.set(&path, json!({"metadata": {"uid": "c-1"}, "spec": {"volumeName": "pv"}, "status": status}));
        };
        claim("pending", json!({"phase": "Pending"}));
        claim("web-v", json!({"phase": "Bound"}));
        let cases = [
            (json!({"configMap": {"name": "x"}}), set_up("configmap \"x\" not found")),
            (json!({"secret": {"secretName": "x"}}), set_up("secret \"x\" not found")),
            (
                json!({"configMap": {"name": "config", "items": [{"key": "k", "path": "p"}]}}),
                set_up("configmap references non-existent config key: k"),
            ),
            (
                json!({"configMap": {"name": "config", "items": [{"key": "a", "path": "../p"}]}}),
                set_up("invalid path: must not contain '..': ../p"),
            ),
            (
                json!({"projected": {"sources": [{"secret": {"name": "x"}}, {"configMap": {"name": "y"}}]}}),
                set_up("[secret \"x\" not found, configmap \"y\" not found]"),
            ),
            (
                json!({"hostPath": {"path": file, "type": "Directory"}}),
                set_up(&format!("hostPath type check failed: {} is not a directory", file.display())),
            ),
            (
                json!({"persistentVolumeClaim": {"claimName": "x"}}),
                unprocessed(
                    "error processing PVC default/x: failed to fetch PVC from API server: persistentvolumeclaims \"x\" not found",
                ),
            ),
            (
                json!({"persistentVolumeClaim": {"claimName": "pending"}}),
                unprocessed("error processing PVC default/pending: PVC is not bound"),
            ),
            (
                json!({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}),
                unprocessed(
                    "error processing PVC default/web-v: PVC default/web-v was not created for pod default/web (pod is not owner)",
                ),
            ),
            (
                json!({"iscsi": {"targetPortal": "p", "iqn": "iqn.2026-01.example:a", "lun": 0}}),
                unprocessed(
                    "failed to get Plugin from volumeSpec for volume \"v\" err=no volume plugin matched: this kubelet does not connect to iSCSI targets itself; use a CSI driver",
                ),
            ),
            (
                json!({"cephfs": {"monitors": ["m"]}}),
                unprocessed("failed to get Plugin from volumeSpec for volume \"v\" err=no volume plugin matched"),
            ),
        ];
        for (mut volume, expected) in cases {
            volume["name"] = "v".into();
            assert_eq!(failure(&node, volume).await, expected);
        }
        let hostile = json!({"name": "../../escape", "emptyDir": {}});
        assert!(failure(&node, hostile).await.contains("invalid volume name"));
        assert!(!node.folder.0.join("kubelet/pods/uid-1/volumes/escape").exists());
    });
}

#[test]
fn claims_lead_to_folders_of_the_node() {
    on_node("claims", async |node| {
        let data = node.folder.0.join("data");
        fs::create_dir(&data).unwrap();
        fs::write(data.join("precious"), "kept").unwrap();
        fs::set_permissions(data.join("precious"), fs::Permissions::from_mode(0o600)).unwrap();
        let bound = json!({"metadata": {"uid": "c-1"}, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}});
        node.api.set("/api/v1/namespaces/default/persistentvolumeclaims/claim", bound);
        let required = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}]});
        let volume = json!({"spec": {
            "claimRef": {"uid": "c-1"}, "local": {"path": data}, "nodeAffinity": {"required": required},
        }});
        node.api.set("/api/v1/persistentvolumes/pv", volume);
        node.api.set("/api/v1/nodes/node-1", json!({"metadata": {"labels": {"disk": "slow"}}}));
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]);
        let pod = pod(volumes, json!({"securityContext": {"fsGroup": 4321, "fsGroupChangePolicy": "OnRootMismatch"}}));
        let error = node.volumes.mount(&pod, &CancellationToken::new()).await.unwrap_err().to_string();
        assert_eq!(error, "MountVolume.NodeAffinity check failed for volume \"pv\" : no matching NodeSelectorTerms");
        node.api.set("/api/v1/nodes/node-1", json!({"metadata": {"labels": {"disk": "fast"}}}));
        let place = path(&node.volumes.mount(&pod, &CancellationToken::new()).await.unwrap(), "v");
        assert_eq!(place, node.folder.0.join("kubelet/pods/uid-1/volumes/kubernetes.io~local-volume/pv"));
        assert_eq!(fs::read_to_string(place.join("precious")).unwrap(), "kept");
        assert_eq!(mode(&data.join("precious")), 0o660);
        fs::set_permissions(data.join("precious"), fs::Permissions::from_mode(0o600)).unwrap();
        // The mount is in use while the pod goes: it must disappear all the same, and the data must stay.
        let _held = fs::File::open(place.join("precious")).unwrap();
        node.volumes.unmount("uid-1").await.unwrap();
        assert!(node.volumes.uids().is_empty());
        assert_eq!(fs::read_to_string(data.join("precious")).unwrap(), "kept");
        node.volumes.mount(&pod, &CancellationToken::new()).await.unwrap();
        assert_eq!(mode(&data.join("precious")), 0o600, "the root was right, so the rest is left alone");
        node.volumes.unmount("uid-1").await.unwrap();
        assert_eq!(fs::read_to_string(data.join("precious")).unwrap(), "kept");
    });
}

#[test]
fn a_volume_for_one_pod_has_one() {
    on_node("one-pod", async |node| {
        let data = node.folder.0.join("data");
        fs::create_dir(&data).unwrap();
        let bound = json!({"metadata": {"uid": "c-1"}, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}});
        node.api.set("/api/v1/namespaces/default/persistentvolumeclaims/claim", bound);
        let volume = |mode: &str| {
            let spec = json!({"claimRef": {"uid": "c-1"}, "local": {"path": data}, "accessModes": [mode]});
            json!({"metadata": {"name": "pv"}, "spec": spec})
        };
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]);
        let first = pod(volumes, json!({}));
        let mut second = first.clone();
        second.metadata.uid = Some("uid-2".into());
        let mount = async |pod: &Pod| {
            let mounted = node.volumes.mount(pod, &CancellationToken::new()).await;
            mounted.map(|_| ()).map_err(|error| error.to_string())
        };
        node.api.set("/api/v1/persistentvolumes/pv", volume("ReadWriteOncePod"));
        assert_eq!(mount(&first).await, Ok(()));
        assert_eq!(mount(&first).await, Ok(()), "its own folder is in nobody's way");
        let why = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";
        assert_eq!(mount(&second).await, Err(format!("MountVolume.SetUp failed for volume \"pv\" : {why}")));
        node.volumes.unmount("uid-1").await.unwrap();
        assert_eq!(mount(&second).await, Ok(()));
        node.api.set("/api/v1/persistentvolumes/pv", volume("ReadWriteOnce"));
        assert_eq!(mount(&first).await, Ok(()), "one node may have several");
        node.volumes.unmount("uid-1").await.unwrap();
        node.volumes.unmount("uid-2").await.unwrap();
    });
}

#[test]
fn images_are_left_to_the_runtime() {
    on_node("images", async |node| {
        let pod = pod(json!([{"name": "v", "image": {"reference": "example.com/tool:1"}}]), json!({}));
        let mounted = node.volumes.mount(&pod, &CancellationToken::new()).await.unwrap();
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let mounts = node.volumes.container_mounts(&pod, container, &mounted, &[]).await.unwrap();
        assert_eq!(mounts[0].image.as_ref().unwrap().image, "example.com/tool:1");
        assert!(mounts[0].readonly && mounts[0].host_path.is_empty());
    });
}

#[test]
fn a_restart_finds_what_is_there() {
    on_node("restart", async |node| {
        node.api.set("/api/v1/namespaces/default/secrets/keys", json!({"data": {"a": "MQ=="}}));
        let volumes = json!([
            {"name": "secret", "secret": {"secretName": "keys"}},
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
            {"name": "unused", "emptyDir": {}},
        ]);
        let mounts = json!([{"name": "secret", "mountPath": "/s"}, {"name": "memory", "mountPath": "/m"}]);
        let pod = pod(volumes, json!({"containers": [{"name": "main", "volumeMounts": mounts}]}));
        let mounted = node.volumes.mount(&pod, &CancellationToken::new()).await.unwrap();
        assert!(!mounted.contains_key("unused"));
        let (secret, memory) = (path(&mounted, "secret"), path(&mounted, "memory"));
        fs::write(memory.join("kept"), "kept").unwrap();
        // As if it had ended while it wrote: a half-made folder and a link that was not put in place.
        fs::create_dir(secret.join("..2020_01_01_00_00_00.1")).unwrap();
        std::os::unix::fs::symlink("..2020_01_01_00_00_00.1", secret.join("..data_tmp")).unwrap();
        let again = {
            let root = node.folder.0.join("kubelet");
            Volumes::with(Objects::new(node.api.client()), "node-1", &root, csi(&node.api, &root), Clock::system())
        };
        node.api.set("/api/v1/namespaces/default/secrets/keys", json!({"data": {"a": "Mg=="}}));
        assert_eq!(again.mount(&pod, &CancellationToken::new()).await.unwrap(), mounted);
        assert_eq!(fs::read_to_string(secret.join("a")).unwrap(), "2");
        assert_eq!(fs::read_to_string(memory.join("kept")).unwrap(), "kept");
        assert_eq!(fs::read_dir(&secret).unwrap().count(), 3, "nothing half-made is left");
        assert_eq!(again.uids(), ["uid-1"]);
        again.unmount("uid-1").await.unwrap();
        let pods = node.folder.0.join("kubelet/pods");
        let left = linux::volume_mount::mount_points().unwrap().into_iter().any(|mount| mount.path.starts_with(&pods));
        assert!(!left && again.uids().is_empty());
    });
}

#[test]
fn huge_pages_are_mounted_in_their_size() {
    on_node("huge-pages", async |node| {
        let volumes = json!([{"name": "v", "emptyDir": {"medium": "HugePages"}}]);
        let error = node
            .volumes
            .mount(&pod(volumes.clone(), json!({})), &CancellationToken::new())
            .await
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("there is no resource request for huge pages"), "{error}");
        let container = json!({
            "name": "main", "volumeMounts": [{"name": "v", "mountPath": "/m"}],
            "resources": {"requests": {"hugepages-2Mi": "4Mi"}},
        });
        let pod = pod(volumes, json!({"containers": [container]}));
        let mounted = node.volumes.mount(&pod, &CancellationToken::new()).await.unwrap();
        let found = linux::volume_mount::file_system_at(&path(&mounted, "v")).unwrap();
        assert_eq!(found.as_deref(), Some("hugetlbfs"));
        node.volumes.unmount("uid-1").await.unwrap();
    });
}
