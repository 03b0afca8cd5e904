//! Persistent volumes in real containers: folders and devices of the node, and claims of a pod's own.

#[path = "support/on_node.rs"]
mod on_node;

use on_node::{Node, folder, mounting as spec, node, none, one, script, with};
use serde_json::{Value, json};

#[test]
fn claims_bring_their_volumes() {
    let node = node();
    let data = folder(&node, "claimed");
    std::fs::write(data.join("kept"), "kept\n").unwrap();
    let local = folder(&node, "local");
    let volume = |name: &str, source: Value| {
        let spec = json!({
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand",
            "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "default", "name": name},
        });
        node.create("/api/v1/persistentvolumes", json!({"metadata": {"name": name}, "spec": with(spec, source)}));
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand", "volumeName": name,
            "resources": {"requests": {"storage": "1Gi"}},
        });
        let claim = node.create("persistentvolumeclaims", json!({"metadata": {"name": name}, "spec": spec}));
        let reference =
            json!({"spec": {"claimRef": {"namespace": "default", "name": name, "uid": claim["metadata"]["uid"]}}});
        node.patch(&format!("/api/v1/persistentvolumes/{name}"), reference);
        let bound = json!({"status": {"phase": "Bound"}});
        node.patch(&format!("/api/v1/persistentvolumes/{name}/status"), bound.clone());
        node.patch(&format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}/status"), bound);
    };
    volume("claimed", json!({"hostPath": {"path": data}}));
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}]}});
    volume("local", json!({"local": {"path": local}, "nodeAffinity": affinity}));
    let elsewhere = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-2"]}]}]}});
    volume("elsewhere", json!({"local": {"path": local}, "nodeAffinity": elsewhere}));
    let claim = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
    let text = node.output(
        "claims",
        spec(
            "cat /claimed/kept; echo mine > /local/mine",
            &[("claimed", claim("claimed"), none()), ("local", claim("local"), none())],
        ),
    );
    assert_eq!(text, "kept\n");
    assert_eq!(std::fs::read_to_string(local.join("mine")).unwrap(), "mine\n");
    let locked = json!({"persistentVolumeClaim": {"claimName": "claimed", "readOnly": true}});
    assert_eq!(
        node.output("claim-locked", spec("touch /v/x || echo refused", &[("v", locked, none())])),
        "touch: /v/x: Read-only file system (os error 30)\nrefused\n"
    );
    node.pod("claim-elsewhere", spec("true", &[("v", claim("elsewhere"), none())]));
    node.until_event(
        "claim-elsewhere",
        "Warning FailedMount MountVolume.NodeAffinity check failed for volume \"elsewhere\"",
    );
    // A claim of the pod's own, made from its template; a claim of that name that is not the pod's is not taken.
    let template = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand", "volumeName": "scratch",
        "resources": {"requests": {"storage": "1Gi"}}});
    let ephemeral = json!({"ephemeral": {"volumeClaimTemplate": {"spec": template}}});
    let pod = node.pod("scratch", spec("cat /v/kept", &[("v", ephemeral, none())]));
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "scratch", "uid": pod["metadata"]["uid"], "controller": true});
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let made = node.send(
        "POST",
        claims,
        json!({"metadata": {"name": "scratch-v", "ownerReferences": [owner]}, "spec": template}),
    );
    // A controller may have been faster.
    assert!(matches!(made.code, 201 | 409), "{}", made.text());
    let own = node.send("GET", &format!("{claims}/scratch-v"), Value::Null).json();
    let reference = json!({"namespace": "default", "name": "scratch-v", "uid": own["metadata"]["uid"]});
    let volume_spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand",
        "claimRef": reference, "hostPath": {"path": data}});
    node.create("/api/v1/persistentvolumes", json!({"metadata": {"name": "scratch"}, "spec": volume_spec}));
    node.patch("/api/v1/persistentvolumes/scratch/status", json!({"status": {"phase": "Bound"}}));
    node.patch(&format!("{claims}/scratch-v/status"), json!({"status": {"phase": "Bound"}}));
    node.until_phase("scratch", "Succeeded");
    assert_eq!(node.until_log("scratch", "main", "kept"), "kept\n");
    node.pod("claim-missing", spec("true", &[("v", claim("nobody"), none())]));
    node.until_event("claim-missing", "Warning FailedMount");
    for name in ["claim-elsewhere", "claim-missing"] {
        node.delete(name, Some(0));
    }
}

/// A device of its own, made of a file; it goes with the test.
struct LoopDevice(String);

impl LoopDevice {
    fn new(file: &std::path::Path) -> LoopDevice {
        LoopDevice::of(file, vec![b'x'; 1 << 20])
    }

    fn of(file: &std::path::Path, content: Vec<u8>) -> LoopDevice {
        std::fs::write(file, content).unwrap();
        let output = std::process::Command::new("losetup").args(["--find", "--show"]).arg(file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        LoopDevice(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn devices_are_volumes_too() {
    let node = Node::start(&[]);
    let file = node.server.data_dir().join("disk");
    let device = LoopDevice::new(&file);
    let plain = folder(&node, "no-device");
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}]}});
    let volume = |name: &str, mode: &str, path: &str| {
        let common = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand", "volumeMode": mode});
        let own = json!({"capacity": {"storage": "1Mi"}, "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": "default", "name": name}, "local": {"path": path}, "nodeAffinity": affinity});
        let spec = with(common.clone(), own);
        node.create("/api/v1/persistentvolumes", json!({"metadata": {"name": name}, "spec": spec}));
        let wish = json!({"volumeName": name, "resources": {"requests": {"storage": "1Mi"}}});
        node.create("persistentvolumeclaims", json!({"metadata": {"name": name}, "spec": with(common, wish)}));
    };
    volume("raw", "Block", &device.0);
    volume("no-device", "Block", plain.to_str().unwrap());
    volume("files", "Filesystem", plain.to_str().unwrap());
    let uses_at = |place: &str, text: &str, claim: &str, read_only: bool| {
        let devices = json!({"volumeDevices": [{"name": "v", "devicePath": place}]});
        let source = json!({"claimName": claim, "readOnly": read_only});
        let volumes = json!({"volumes": [{"name": "v", "persistentVolumeClaim": source}]});
        with(one(with(script(text), devices)), volumes)
    };
    let uses = |text: &str, claim: &str, read_only: bool| uses_at("/dev/disk", text, claim, read_only);
    let text = node.output("raw", uses("stat /dev/disk; echo written > /dev/disk && echo ok", "raw", false));
    assert!(text.contains("/dev/disk: b") && text.ends_with("ok\n"), "{text}");
    let synced = std::process::Command::new("sync").arg(&device.0).status().unwrap();
    assert!(synced.success());
    assert!(std::fs::read(&file).unwrap().starts_with(b"written\nxxx"));
    let text = node.output("raw-locked", uses("echo again > /dev/disk || echo refused", "raw", true));
    assert!(text.ends_with("refused\n"), "{text}");
    // A device may be wanted outside of /dev.
    let elsewhere = "stat /mnt/disk; echo outside > /mnt/disk && echo ok";
    let text = node.output("raw-elsewhere", uses_at("/mnt/disk", elsewhere, "raw", false));
    assert!(text.contains("/mnt/disk: b") && text.ends_with("ok\n"), "{text}");
    let locked = uses_at("/mnt/disk", "echo again > /mnt/disk || echo refused", "raw", true);
    let text = node.output("raw-elsewhere-locked", locked);
    assert!(text.ends_with("refused\n"), "{text}");
    node.pod("raw-no-device", uses("true", "no-device", false));
    let path = plain.display();
    node.until_event(
        "raw-no-device",
        &format!(
            "Warning FailedMapVolume MapVolume.MapPodDevice failed for volume \"no-device\" : {path} is not a block device"
        ),
    );
    // What is a device is not mounted, and what holds files is not shown as one.
    let claim = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
    node.pod("raw-mounted", spec("true", &[("v", claim("raw"), none())]));
    let wrong = "Warning FailedMount Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: volume v has volumeMode";
    node.until_event("raw-mounted", &format!("{wrong} Block, but is specified in volumeMounts"));
    node.pod("files-mapped", uses("true", "files", false));
    node.until_event("files-mapped", &format!("{wrong} Filesystem, but is specified in volumeDevices"));
}

const CAP_SYS_RESOURCE: u32 = 24;

fn has_capability(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(held.trim(), 16).unwrap() >> number & 1 == 1
}

#[test]
fn devices_without_a_file_system_get_one_and_grow() {
    let node = Node::start(&[]);
    let file = node.server.data_dir().join("empty-disk");
    let device = LoopDevice::of(&file, vec![0; 16 << 20]);
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}]}});
    let common = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand"});
    let own = json!({"capacity": {"storage": "16Mi"}, "persistentVolumeReclaimPolicy": "Retain", "nodeAffinity": affinity,
        "claimRef": {"namespace": "default", "name": "disk"}, "local": {"path": device.0}});
    node.create("/api/v1/persistentvolumes", json!({"metadata": {"name": "disk"}, "spec": with(common.clone(), own)}));
    let wish = json!({"volumeName": "disk", "resources": {"requests": {"storage": "16Mi"}}});
    node.create("persistentvolumeclaims", json!({"metadata": {"name": "disk"}, "spec": with(common, wish)}));
    let uses = |text: &str| spec(text, &[("v", json!({"persistentVolumeClaim": {"claimName": "disk"}}), none())]);
    let grow = || {
        std::fs::File::options().write(true).open(&file).unwrap().set_len(32 << 20).unwrap();
        let told = std::process::Command::new("losetup").arg("--set-capacity").arg(&device.0).status().unwrap();
        assert!(told.success());
    };
    // The kernel grows mounted file systems only for who may exceed resource limits. Elsewhere the device is large from the
    // start, and the claim alone is behind.
    let may_grow = has_capability(CAP_SYS_RESOURCE);
    if !may_grow {
        grow();
    }
    assert_eq!(node.output("first", uses("echo kept > /v/file && echo ok")), "ok\n");
    let mounts = node.server.data_dir().join("kubelet/plugins/kubernetes.io/local-volume/mounts/disk");
    node.delete("first", Some(0));
    let until = |what: &str, done: &dyn Fn() -> bool| {
        for _ in 0..600 {
            if done() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("{what}");
    };
    until("the device stays mounted without a pod", &|| !mounts.exists());

    // Whoever grows volumes has done so and leaves the file system to the node.
    if may_grow {
        grow();
    }
    let size = json!({"storage": "32Mi"});
    node.patch("/api/v1/persistentvolumes/disk", json!({"spec": {"capacity": size}}));
    let claim = "/api/v1/namespaces/default/persistentvolumeclaims/disk";
    let waiting = json!({"allocatedResources": size, "allocatedResourceStatuses": {"storage": "NodeResizePending"},
        "conditions": [{"type": "FileSystemResizePending", "status": "True"}]});
    node.patch(&format!("{claim}/status"), json!({"status": waiting}));
    assert_eq!(node.output("second", uses("cat /v/file")), "kept\n");
    let status = node.send("GET", claim, Value::Null).json()["status"].clone();
    assert_eq!(status["capacity"], size, "{status}");
    assert_eq!((&status["allocatedResourceStatuses"], &status["conditions"]), (&Value::Null, &Value::Null));
    node.until_event(
        "second",
        "Normal FileSystemResizeSuccessful MountVolume.NodeExpandVolume succeeded for volume \"disk\" node-1",
    );
    let seen = std::process::Command::new("dumpe2fs").arg("-h").arg(&device.0).output().unwrap();
    let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
    let number = |key: &str| -> u64 {
        let line = seen.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_else(|| panic!("{key} in {seen}"));
        line.trim().parse().unwrap()
    };
    assert_eq!(number("Block count:") * number("Block size:"), 32 << 20);
}
