//! Every built-in kind and its rules: one folder per kind, named as the API names it. No IO, no clock.

use machinery::kind::Kind;

pub mod admissionregistration;
pub mod apiextensions;
pub mod apiregistration;
pub mod apps;
pub mod authentication;
pub mod authorization;
pub mod autoscaling;
pub mod batch;
pub mod certificates;
mod check;
pub mod common;
pub mod coordination;
pub mod core;
pub mod discovery;
pub mod events;
pub mod flowcontrol;
pub mod networking;
pub mod node;
mod optional;
pub mod policy;
pub mod rbac;
pub mod resource;
pub mod scheduling;
pub mod schema;
mod show;
mod status;
pub mod storage;
pub mod storagemigration;
#[cfg(test)]
mod kept_tests;
#[cfg(test)]
mod print_tests;
#[cfg(test)]
mod rule_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod upstream_tests;
mod webhook_client;

pub use self::optional::{OPTIONAL, Optional, deprecation, every_kind};

/// Every kind that is served by default, in discovery order. Routes, discovery, storage and the tests over all kinds come from it.
pub static KINDS: &[&Kind] = &[
    &core::binding::KIND,
    &core::componentstatus::KIND,
    &core::configmap::KIND,
    &core::endpoints::KIND,
    &core::event::KIND,
    &core::limitrange::KIND,
    &core::namespace::KIND,
    &core::node::KIND,
    &core::persistentvolumeclaim::KIND,
    &core::persistentvolume::KIND,
    &core::pod::KIND,
    &core::podtemplate::KIND,
    &core::replicationcontroller::KIND,
    &core::resourcequota::KIND,
    &core::secret::KIND,
    &core::serviceaccount::KIND,
    &core::service::KIND,
    &apiregistration::apiservice::KIND,
    &apps::controllerrevision::KIND,
    &apps::daemonset::KIND,
    &apps::deployment::KIND,
    &apps::replicaset::KIND,
    &apps::statefulset::KIND,
    &events::event::KIND,
    &authentication::selfsubjectreview::KIND,
    &authentication::tokenreview::KIND,
    &authorization::localsubjectaccessreview::KIND,
    &authorization::selfsubjectaccessreview::KIND,
    &authorization::selfsubjectrulesreview::KIND,
    &authorization::subjectaccessreview::KIND,
    &autoscaling::horizontalpodautoscaler::KIND,
    &autoscaling::horizontalpodautoscaler_v1::KIND,
    &batch::cronjob::KIND,
    &batch::job::KIND,
    &certificates::certificatesigningrequest::KIND,
    &networking::ingressclass::KIND,
    &networking::ingress::KIND,
    &networking::ipaddress::KIND,
    &networking::networkpolicy::KIND,
    &networking::servicecidr::KIND,
    &policy::poddisruptionbudget::KIND,
    &rbac::clusterrolebinding::KIND,
    &rbac::clusterrole::KIND,
    &rbac::rolebinding::KIND,
    &rbac::role::KIND,
    &storage::csidriver::KIND,
    &storage::csinode::KIND,
    &storage::csistoragecapacity::KIND,
    &storage::storageclass::KIND,
    &storage::volumeattachment::KIND,
    &storage::volumeattributesclass::KIND,
    &admissionregistration::mutatingadmissionpolicy::KIND,
    &admissionregistration::mutatingadmissionpolicybinding::KIND,
    &admissionregistration::mutatingwebhookconfiguration::KIND,
    &admissionregistration::validatingadmissionpolicy::KIND,
    &admissionregistration::validatingadmissionpolicybinding::KIND,
    &admissionregistration::validatingwebhookconfiguration::KIND,
    &apiextensions::customresourcedefinition::KIND,
    &scheduling::priorityclass::KIND,
    &coordination::lease::KIND,
    &node::runtimeclass::KIND,
    &discovery::endpointslice::KIND,
    &resource::deviceclass::KIND,
    &resource::resourceclaim::KIND,
    &resource::resourceclaimtemplate::KIND,
    &resource::resourceslice::KIND,
    &flowcontrol::flowschema::KIND,
    &flowcontrol::prioritylevelconfiguration::KIND,
];
