//! Servers in Go write lists and maps that are not there as null. Everything that is read from others takes that for nothing.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, Event, Namespace, Node, PersistentVolume, Pod, ResourceQuota, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResourceList};
use kube::api::{DynamicObject, ObjectList, PartialObjectMeta};
use kube::config::Kubeconfig;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The object with null in every place where nothing need be, `{}` marks an object whose fields are.
fn check<T: DeserializeOwned>(value: Value) {
    if let Err(error) = serde_json::from_str::<T>(&value.to_string()) {
        panic!("{}: {error}: {value}", std::any::type_name::<T>());
    }
}

#[test]
fn lists() {
    for items in [json!(null), json!([])] {
        let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items});
        check::<ObjectList<Pod>>(list.clone());
        check::<ObjectList<DynamicObject>>(list.clone());
        check::<ObjectList<PartialObjectMeta<Pod>>>(list);
    }
    check::<ObjectList<Pod>>(json!({"metadata": {"continue": null, "remainingItemCount": null}, "items": null}));
    check::<APIGroupList>(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": null}));
    check::<APIGroupList>(json!({"groups": [{"name": "a", "versions": null, "preferredVersion": null}]}));
    check::<APIResourceList>(json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": null}));
    let resource = json!({"name": "x", "verbs": null, "shortNames": null, "categories": null, "singularName": null});
    check::<APIResourceList>(json!({"groupVersion": "v1", "resources": [resource]}));
}

#[test]
fn metadata() {
    let metadata = json!({"name": "a", "creationTimestamp": null, "labels": null, "annotations": null, "finalizers": null,
        "ownerReferences": null, "managedFields": null, "deletionTimestamp": null, "generation": null});
    check::<Pod>(json!({"metadata": metadata, "spec": null, "status": null}));
    check::<ConfigMap>(json!({"metadata": metadata, "data": null, "binaryData": null, "immutable": null}));
    check::<Secret>(json!({"metadata": null, "data": null, "stringData": null, "type": null}));
    check::<PartialObjectMeta<DynamicObject>>(json!({"metadata": metadata}));
    check::<Lease>(json!({"metadata": metadata, "spec": {"holderIdentity": null, "renewTime": null}}));
    check::<Namespace>(json!({"metadata": metadata, "spec": {"finalizers": null}, "status": {"conditions": null}}));
    check::<ServiceAccount>(json!({"metadata": metadata, "secrets": null, "imagePullSecrets": null}));
    check::<Event>(json!({"metadata": metadata, "involvedObject": {}, "source": null, "series": null}));
}

#[test]
fn workloads() {
    let pod = json!({"containers": null, "volumes": null, "tolerations": null, "nodeSelector": null, "affinity": null});
    let container = json!({"name": "c", "env": null, "envFrom": null, "ports": null, "args": null, "resources": null,
        "volumeMounts": null, "securityContext": {"capabilities": {"add": null, "drop": null}}});
    check::<Pod>(json!({"spec": pod, "status": {"conditions": null, "containerStatuses": null, "podIPs": null}}));
    check::<Pod>(json!({"spec": {"containers": [container], "initContainers": null, "resourceClaims": null}}));
    let template = json!({"metadata": {"creationTimestamp": null}, "spec": pod});
    let spec = json!({"selector": {"matchLabels": null, "matchExpressions": null}, "template": template});
    check::<Deployment>(json!({"spec": spec, "status": {"conditions": null}}));
    check::<ReplicaSet>(json!({"spec": spec, "status": {"conditions": null, "replicas": null}}));
    check::<DaemonSet>(json!({"spec": spec, "status": {"conditions": null}}));
    check::<StatefulSet>(json!({"spec": {"serviceName": null, "selector": {}, "template": template,
        "volumeClaimTemplates": null}, "status": {"conditions": null, "replicas": null}}));
    check::<Job>(json!({"spec": {"template": template, "podFailurePolicy": {"rules": null}, "successPolicy": null},
        "status": {"conditions": null, "uncountedTerminatedPods": {"failed": null, "succeeded": null}}}));
    check::<CronJob>(json!({"spec": {"schedule": "", "jobTemplate": {"metadata": null, "spec": null}},
        "status": {"active": null}}));
    check::<HorizontalPodAutoscaler>(json!({"spec": {"scaleTargetRef": {}, "maxReplicas": 1, "metrics": null,
        "behavior": {"scaleUp": {"policies": null}}}, "status": {"conditions": null, "currentMetrics": null}}));
    check::<Scale>(json!({"metadata": null, "spec": null, "status": {"replicas": 0, "selector": null}}));
    check::<PodDisruptionBudget>(json!({"spec": {"selector": null}, "status": {"disruptedPods": null,
        "conditions": null, "currentHealthy": null}}));
}

#[test]
fn network() {
    check::<EndpointSlice>(json!({"addressType": "IPv4", "endpoints": null, "ports": null}));
    check::<EndpointSlice>(json!({"addressType": "IPv4", "endpoints": [{"addresses": null, "conditions": null,
        "hints": {"forZones": null}}], "ports": [{"name": null, "port": null}]}));
    check::<Endpoints>(json!({"subsets": null}));
    check::<Endpoints>(json!({"subsets": [{"addresses": null, "notReadyAddresses": null, "ports": null}]}));
    check::<Service>(json!({"spec": {"ports": null, "selector": null, "clusterIPs": null, "externalIPs": null,
        "loadBalancerSourceRanges": null}, "status": {"loadBalancer": {"ingress": null}, "conditions": null}}));
    check::<Ingress>(json!({"spec": {"rules": null, "tls": null}, "status": {"loadBalancer": null}}));
    check::<Ingress>(json!({"spec": {"rules": [{"host": "a", "http": {"paths": null}}], "tls": [{"hosts": null}]}}));
    check::<NetworkPolicy>(json!({"spec": {"podSelector": {}, "ingress": null, "egress": null, "policyTypes": null}}));
    check::<NetworkPolicy>(json!({"spec": {"podSelector": {}, "ingress": [{"from": null, "ports": null}]}}));
}

#[test]
fn nodes_storage_and_devices() {
    check::<Node>(json!({"spec": {"taints": null, "podCIDRs": null}, "status": {"conditions": null, "addresses": null,
        "images": null, "capacity": null, "allocatable": null, "volumesInUse": null, "volumesAttached": null}}));
    check::<PersistentVolume>(json!({"spec": {"accessModes": null, "capacity": null, "mountOptions": null}}));
    check::<StorageClass>(
        json!({"provisioner": "p", "parameters": null, "mountOptions": null, "allowedTopologies": null}),
    );
    check::<CSINode>(json!({"spec": {"drivers": null}}));
    check::<ResourceClaim>(json!({"spec": {"devices": {"requests": null, "constraints": null, "config": null}},
        "status": {"allocation": {"devices": {"results": null}}, "reservedFor": null, "devices": null}}));
    check::<ResourceSlice>(json!({"spec": {"driver": "d", "pool": {}, "devices": null}}));
    check::<ResourceQuota>(json!({"spec": {"hard": null, "scopes": null}, "status": {"hard": null, "used": null}}));
}

#[test]
fn access() {
    check::<ClusterRole>(json!({"rules": null, "aggregationRule": {"clusterRoleSelectors": null}}));
    check::<ClusterRole>(
        json!({"rules": [{"verbs": null, "resources": null, "apiGroups": null, "resourceNames": null}]}),
    );
    check::<RoleBinding>(json!({"roleRef": {}, "subjects": null}));
    check::<TokenReview>(json!({"spec": {"token": "t", "audiences": null}, "status": {"authenticated": true,
        "user": {"groups": null, "extra": null}, "audiences": null}}));
    check::<SubjectAccessReview>(json!({"spec": {"groups": null, "extra": null}, "status": {"allowed": false}}));
    check::<CertificateSigningRequest>(
        json!({"spec": {"request": "", "signerName": "", "usages": null, "groups": null,
        "extra": null}, "status": {"conditions": null, "certificate": null}}),
    );
    check::<ValidatingAdmissionPolicy>(
        json!({"spec": {"validations": null, "matchConstraints": {"resourceRules": null},
        "matchConditions": null, "variables": null, "auditAnnotations": null}, "status": {"typeChecking": null}}),
    );
    check::<Kubeconfig>(json!({"apiVersion": "v1", "clusters": null, "users": null, "contexts": null,
        "preferences": null, "extensions": null, "current-context": null}));
    check::<Kubeconfig>(json!({"clusters": [{"name": "c", "cluster": null}], "users": [{"name": "u", "user": null}],
        "contexts": [{"name": "x", "context": null}]}));
}
