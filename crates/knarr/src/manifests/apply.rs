//! The API's side: finds out what kinds are, applies and deletes objects, keeps the records.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::discovery::{self, Scope};
use serde_json::Value;

use super::plan::Reference;
use super::record::{LABEL, NAMESPACE, Record};

const MANAGER: &str = "knarr-manifests";
/// On every object: the server and the file it came from.
const OWNER: &str = "knarr.dev/manifest";

pub struct Cluster {
    client: kube::Client,
    kinds: HashMap<GroupVersionKind, (ApiResource, Scope)>,
}

impl Cluster {
    pub fn new(client: kube::Client) -> Cluster {
        Cluster { client, kinds: HashMap::new() }
    }

    /// Kinds come and go with their definitions.
    pub fn forget_kinds(&mut self) {
        self.kinds.clear();
    }

    async fn kind(&mut self, api_version: &str, kind: &str) -> kube::Result<(ApiResource, Scope)> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let wanted = GroupVersionKind::gvk(group, version, kind);
        if let Some(known) = self.kinds.get(&wanted) {
            return Ok(known.clone());
        }
        let (resource, capabilities) = discovery::pinned_kind(&self.client, &wanted).await?;
        let found = (resource, capabilities.scope);
        self.kinds.insert(wanted, found.clone());
        Ok(found)
    }

    /// Which object of which resource is meant; what is in no namespace and needs one is in `default`.
    pub async fn resolve(&mut self, object: &Value) -> kube::Result<(Reference, ApiResource)> {
        let mut reference = Reference::of(object).expect("what was read has a kind and a name");
        let (resource, scope) = self.kind(&reference.api_version, &reference.kind).await?;
        reference.namespace = match scope {
            Scope::Namespaced => Some(reference.namespace.unwrap_or_else(|| "default".into())),
            Scope::Cluster => None,
        };
        Ok((reference, resource))
    }

    /// What a file says wins over what others wrote; what it does not mention is left to them.
    pub async fn apply(
        &self,
        resource: &ApiResource,
        reference: &Reference,
        mut object: Value,
        owner: &str,
    ) -> kube::Result<()> {
        let metadata = &mut object["metadata"];
        match metadata["annotations"].as_object_mut() {
            Some(annotations) => _ = annotations.insert(OWNER.into(), owner.into()),
            None => metadata["annotations"] = serde_json::json!({OWNER: owner}),
        }
        match &reference.namespace {
            Some(namespace) => metadata["namespace"] = namespace.clone().into(),
            None => _ = metadata.as_object_mut().map(|fields| fields.remove("namespace")),
        }
        // Written out of a cluster, they would be refused.
        for field in ["managedFields", "resourceVersion", "uid", "creationTimestamp"] {
            metadata.as_object_mut().map(|fields| fields.remove(field));
        }
        let parameters = PatchParams::apply(MANAGER).force();
        self.api(resource, reference).patch(&reference.name, &parameters, &Patch::Apply(object)).await.map(|_| ())
    }

    /// Deletes an object that is still the file's. One that is not there is no trouble.
    pub async fn delete(&mut self, reference: &Reference, owner: &str) -> kube::Result<()> {
        let resource = match self.kind(&reference.api_version, &reference.kind).await {
            Ok((resource, _)) => resource,
            // Without its kind there is no object either.
            Err(error) if may_pass(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let api = self.api(&resource, reference);
        let Some(found) = api.get_opt(&reference.name).await? else { return Ok(()) };
        if found.metadata.annotations.as_ref().and_then(|all| all.get(OWNER)).is_none_or(|value| value != owner) {
            tracing::info!(object = %reference, "keeping object that left its manifest: another owner manages it");
            return Ok(());
        }
        let parameters = DeleteParams {
            preconditions: found
                .metadata
                .uid
                .map(|uid| kube::api::Preconditions { uid: Some(uid), ..Default::default() }),
            ..DeleteParams::background()
        };
        tracing::info!(object = %reference, "deleted object that left its manifest");
        match api.delete(&reference.name, &parameters).await {
            Err(kube::Error::Api(status)) if status.code != 404 => Err(kube::Error::Api(status)),
            _ => Ok(()),
        }
    }

    fn api(&self, resource: &ApiResource, reference: &Reference) -> Api<DynamicObject> {
        match &reference.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        }
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// What the files of this server have made.
    pub async fn records(&self, server: &str) -> kube::Result<BTreeMap<String, Record>> {
        let found = self.maps().list(&ListParams::default().labels(LABEL)).await?;
        Ok(found.iter().filter_map(|map| Record::read(map, server)).collect())
    }

    pub async fn write(&self, record: &mut Record) -> kube::Result<()> {
        // Until it is written, it counts as not being there.
        record.uid = None;
        let parameters = PatchParams::apply(MANAGER).force();
        let written = self.maps().patch(&record.name(), &parameters, &Patch::Apply(record.object())).await?;
        record.uid = written.metadata.uid;
        Ok(())
    }

    pub async fn forget(&self, record: &Record) -> kube::Result<()> {
        match self.maps().delete(&record.name(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code != 404 => Err(kube::Error::Api(status)),
            _ => Ok(()),
        }
    }
}

/// Whether something is merely not there yet: a kind, a namespace.
pub fn may_pass(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 404,
        kube::Error::Discovery(_) => true,
        _ => false,
    }
}
