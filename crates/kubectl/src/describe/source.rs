//! Where volumes come from: what is told of each kind of source, of pods and of persistent volumes.

use serde_json::Value;

use super::{bracketed, map, plain, text};

/// Whose volume it is: references to Secrets are local to a pod, and have a namespace in a persistent volume.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Of {
    Pod,
    PersistentVolume,
}

/// How a field is written.
enum As {
    Text,
    /// A text, a number or a switch, with what stands there when it is not set.
    Or(&'static str),
    /// A quantity, where more than nothing is asked for.
    Size,
    /// As Go prints a list: `[a b]`.
    List,
    /// `a, b`
    Commas,
    /// As Go prints a map: `map[a:b]`.
    Map,
    /// A reference to a Secret, as Go prints one.
    Secret,
}

struct Source {
    field: &'static str,
    kind: &'static str,
    lines: &'static [(&'static str, &'static str, As)],
}

/// The lines about the source of a volume, without indentation; none for sources that have lines of their own or none.
pub(crate) fn lines(volume: &Value, of: Of) -> Option<Vec<String>> {
    let special = if of == Of::PersistentVolume { PERSISTENT } else { &[] };
    let source = special.iter().chain(SOURCES).find(|source| volume[source.field].is_object())?;
    let found = &volume[source.field];
    let mut out = vec![format!("Type:\t{}", source.kind)];
    out.extend(source.lines.iter().map(|(title, path, shown)| format!("{title}\t{}", value(found, path, shown, of))));
    Some(out)
}

fn value(source: &Value, path: &str, shown: &As, of: Of) -> String {
    let found = source.pointer(path).unwrap_or(&Value::Null);
    match shown {
        As::Text => plain(found),
        As::Or(instead) if found.is_null() => instead.to_string(),
        As::Or(_) => plain(found),
        As::Size => match machinery::quantity::Quantity::from_value(found) {
            Ok(size) if size.milli_value() > 0 => plain(found),
            _ => "<unset>".into(),
        },
        As::List => bracketed(found.as_array().map(Vec::as_slice).unwrap_or_default()),
        As::Commas => found.as_array().into_iter().flatten().map(plain).collect::<Vec<_>>().join(", "),
        As::Map => {
            let pairs: Vec<String> =
                map(source, path).iter().map(|(key, value)| format!("{key}:{}", plain(value))).collect();
            format!("map[{}]", pairs.join(" "))
        }
        As::Secret if found.is_null() => "nil".into(),
        As::Secret if of == Of::Pod => format!("&LocalObjectReference{{Name:{},}}", text(found, "/name")),
        As::Secret => {
            format!("&SecretReference{{Name:{},Namespace:{},}}", text(found, "/name"), text(found, "/namespace"))
        }
    }
}

const READ_ONLY: (&str, &str, As) = ("ReadOnly:", "/readOnly", As::Or("false"));
const FS_TYPE: (&str, &str, As) = ("FSType:", "/fsType", As::Text);
const OPTIONAL: (&str, &str, As) = ("Optional:", "/optional", As::Or("false"));

/// Sources that persistent volumes tell more of.
const PERSISTENT: &[Source] = &[
    Source {
        field: "glusterfs",
        kind: "Glusterfs (a Glusterfs mount on the host that shares a pod's lifetime)",
        lines: &[
            ("EndpointsName:", "/endpoints", As::Text),
            ("EndpointsNamespace:", "/endpointsNamespace", As::Or("<unset>")),
            ("Path:", "/path", As::Text),
            READ_ONLY,
        ],
    },
    Source {
        field: "scaleIO",
        kind: "ScaleIO (a persistent volume backed by a block device in ScaleIO)",
        lines: &[
            ("Gateway:", "/gateway", As::Text),
            ("System:", "/system", As::Text),
            ("Protection Domain:", "/protectionDomain", As::Text),
            ("Storage Pool:", "/storagePool", As::Text),
            ("Storage Mode:", "/storageMode", As::Text),
            ("VolumeName:", "/volumeName", As::Text),
            ("SecretName:", "/secretRef/name", As::Text),
            ("SecretNamespace:", "/secretRef/namespace", As::Text),
            FS_TYPE,
            READ_ONLY,
        ],
    },
    Source {
        field: "azureFile",
        kind: "AzureFile (an Azure File Service mount on the host and bind mount to the pod)",
        lines: &[
            ("SecretName:", "/secretName", As::Text),
            ("SecretNamespace:", "/secretNamespace", As::Text),
            ("ShareName:", "/shareName", As::Text),
            READ_ONLY,
        ],
    },
    Source {
        field: "local",
        kind: "LocalVolume (a persistent volume backed by local storage on a node)",
        lines: &[("Path:", "/path", As::Text)],
    },
];

const SOURCES: &[Source] = &[
    Source {
        field: "hostPath",
        kind: "HostPath (bare host directory volume)",
        lines: &[("Path:", "/path", As::Text), ("HostPathType:", "/type", As::Or("<none>"))],
    },
    Source {
        field: "emptyDir",
        kind: "EmptyDir (a temporary directory that shares a pod's lifetime)",
        lines: &[("Medium:", "/medium", As::Text), ("SizeLimit:", "/sizeLimit", As::Size)],
    },
    Source {
        field: "gcePersistentDisk",
        kind: "GCEPersistentDisk (a Persistent Disk resource in Google Compute Engine)",
        lines: &[("PDName:", "/pdName", As::Text), FS_TYPE, ("Partition:", "/partition", As::Or("0")), READ_ONLY],
    },
    Source {
        field: "awsElasticBlockStore",
        kind: "AWSElasticBlockStore (a Persistent Disk resource in AWS)",
        lines: &[("VolumeID:", "/volumeID", As::Text), FS_TYPE, ("Partition:", "/partition", As::Or("0")), READ_ONLY],
    },
    Source {
        field: "gitRepo",
        kind: "GitRepo (a volume that is pulled from git when the pod is created)",
        lines: &[("Repository:", "/repository", As::Text), ("Revision:", "/revision", As::Text)],
    },
    Source {
        field: "secret",
        kind: "Secret (a volume populated by a Secret)",
        lines: &[("SecretName:", "/secretName", As::Text), OPTIONAL],
    },
    Source {
        field: "configMap",
        kind: "ConfigMap (a volume populated by a ConfigMap)",
        lines: &[("Name:", "/name", As::Text), OPTIONAL],
    },
    Source {
        field: "nfs",
        kind: "NFS (an NFS mount that lasts the lifetime of a pod)",
        lines: &[("Server:", "/server", As::Text), ("Path:", "/path", As::Text), READ_ONLY],
    },
    Source {
        field: "iscsi",
        kind: "ISCSI (an ISCSI Disk resource that is attached to a kubelet's host machine and then exposed to the pod)",
        lines: &[
            ("TargetPortal:", "/targetPortal", As::Text),
            ("IQN:", "/iqn", As::Text),
            ("Lun:", "/lun", As::Or("0")),
            ("ISCSIInterface", "/iscsiInterface", As::Text),
            FS_TYPE,
            READ_ONLY,
            ("Portals:", "/portals", As::List),
            ("DiscoveryCHAPAuth:", "/chapAuthDiscovery", As::Or("false")),
            ("SessionCHAPAuth:", "/chapAuthSession", As::Or("false")),
            ("SecretRef:", "/secretRef", As::Secret),
            ("InitiatorName:", "/initiatorName", As::Or("<none>")),
        ],
    },
    Source {
        field: "glusterfs",
        kind: "Glusterfs (a Glusterfs mount on the host that shares a pod's lifetime)",
        lines: &[("EndpointsName:", "/endpoints", As::Text), ("Path:", "/path", As::Text), READ_ONLY],
    },
    Source {
        field: "persistentVolumeClaim",
        kind: "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
        lines: &[("ClaimName:", "/claimName", As::Text), READ_ONLY],
    },
    Source {
        field: "rbd",
        kind: "RBD (a Rados Block Device mount on the host that shares a pod's lifetime)",
        lines: &[
            ("CephMonitors:", "/monitors", As::List),
            ("RBDImage:", "/image", As::Text),
            FS_TYPE,
            ("RBDPool:", "/pool", As::Text),
            ("RadosUser:", "/user", As::Text),
            ("Keyring:", "/keyring", As::Text),
            ("SecretRef:", "/secretRef", As::Secret),
            READ_ONLY,
        ],
    },
    Source {
        field: "quobyte",
        kind: "Quobyte (a Quobyte mount on the host that shares a pod's lifetime)",
        lines: &[("Registry:", "/registry", As::Text), ("Volume:", "/volume", As::Text), READ_ONLY],
    },
    Source {
        field: "azureDisk",
        kind: "AzureDisk (an Azure Data Disk mount on the host and bind mount to the pod)",
        lines: &[
            ("DiskName:", "/diskName", As::Text),
            ("DiskURI:", "/diskURI", As::Text),
            ("Kind: ", "/kind", As::Text),
            FS_TYPE,
            ("CachingMode:", "/cachingMode", As::Text),
            READ_ONLY,
        ],
    },
    Source {
        field: "vsphereVolume",
        kind: "vSphereVolume (a Persistent Disk resource in vSphere)",
        lines: &[
            ("VolumePath:", "/volumePath", As::Text),
            FS_TYPE,
            ("StoragePolicyName:", "/storagePolicyName", As::Text),
        ],
    },
    Source {
        field: "cinder",
        kind: "Cinder (a Persistent Disk resource in OpenStack)",
        lines: &[("VolumeID:", "/volumeID", As::Text), FS_TYPE, READ_ONLY, ("SecretRef:", "/secretRef", As::Secret)],
    },
    Source {
        field: "photonPersistentDisk",
        kind: "PhotonPersistentDisk (a Persistent Disk resource in photon platform)",
        lines: &[("PdID:", "/pdID", As::Text), FS_TYPE],
    },
    Source {
        field: "portworxVolume",
        kind: "PortworxVolume (a Portworx Volume resource)",
        lines: &[("VolumeID:", "/volumeID", As::Text)],
    },
    Source {
        field: "scaleIO",
        kind: "ScaleIO (a persistent volume backed by a block device in ScaleIO)",
        lines: &[
            ("Gateway:", "/gateway", As::Text),
            ("System:", "/system", As::Text),
            ("Protection Domain:", "/protectionDomain", As::Text),
            ("Storage Pool:", "/storagePool", As::Text),
            ("Storage Mode:", "/storageMode", As::Text),
            ("VolumeName:", "/volumeName", As::Text),
            FS_TYPE,
            READ_ONLY,
        ],
    },
    Source {
        field: "cephfs",
        kind: "CephFS (a CephFS mount on the host that shares a pod's lifetime)",
        lines: &[
            ("Monitors:", "/monitors", As::List),
            ("Path:", "/path", As::Text),
            ("User:", "/user", As::Text),
            ("SecretFile:", "/secretFile", As::Text),
            ("SecretRef:", "/secretRef", As::Secret),
            READ_ONLY,
        ],
    },
    Source {
        field: "storageos",
        kind: "StorageOS (a StorageOS Persistent Disk resource)",
        lines: &[
            ("VolumeName:", "/volumeName", As::Text),
            ("VolumeNamespace:", "/volumeNamespace", As::Text),
            FS_TYPE,
            READ_ONLY,
        ],
    },
    Source {
        field: "fc",
        kind: "FC (a Fibre Channel disk)",
        lines: &[("TargetWWNs:", "/targetWWNs", As::Commas), ("LUN:", "/lun", As::Or("<none>")), FS_TYPE, READ_ONLY],
    },
    Source {
        field: "azureFile",
        kind: "AzureFile (an Azure File Service mount on the host and bind mount to the pod)",
        lines: &[("SecretName:", "/secretName", As::Text), ("ShareName:", "/shareName", As::Text), READ_ONLY],
    },
    Source {
        field: "flexVolume",
        kind: "FlexVolume (a generic volume resource that is provisioned/attached using an exec based plugin)",
        lines: &[
            ("Driver:", "/driver", As::Text),
            FS_TYPE,
            ("SecretRef:", "/secretRef", As::Secret),
            READ_ONLY,
            ("Options:", "/options", As::Map),
        ],
    },
    Source {
        field: "flocker",
        kind: "Flocker (a Flocker volume mounted by the Flocker agent)",
        lines: &[("DatasetName:", "/datasetName", As::Text), ("DatasetUUID:", "/datasetUUID", As::Text)],
    },
    Source {
        field: "image",
        kind: "Image (a container image or OCI artifact)",
        lines: &[("Reference:", "/reference", As::Text), ("PullPolicy:", "/pullPolicy", As::Text)],
    },
];
