//! StorageVersionMigration: every object of a resource is to be written once more, in the version and with the keys of today.

mod validate;

use machinery::kind::{Kind, Scope, Subresource};
use machinery::object::Meta;
use machinery::table::{Cell, Column};
use serde_json::Value;

use crate::status;

pub(crate) static KIND: Kind = Kind {
    group: "storagemigration.k8s.io",
    version: "v1beta1",
    kind: "StorageVersionMigration",
    plural: "storageversionmigrations",
    singular: "storageversionmigration",
    scope: Scope::Cluster,
    subresources: &[Subresource::status("StorageVersionMigration")],
    schema: "io.k8s.api.storagemigration.v1beta1.StorageVersionMigration",
    storage: "storageversionmigrations",
    columns: &[Column::name(""), Column::new("Resource", "string", 0), Column::new("Status", "string", 0)],
    unconditional_update: false,
    prepare_create: status::set_empty,
    prepare_update: |new, old| status::set(new, old["status"].clone()),
    validate: validate::validate,
    validate_update: validate::validate_update,
    validate_status: validate::validate_status,
    row: |migration, _| row(migration),
    ..Kind::COMMON
};

fn row(migration: &Value) -> Vec<Cell> {
    let text = |field: &str| migration["spec"]["resource"][field].as_str().unwrap_or("");
    let resource = match text("group") {
        "" => text("resource").to_owned(),
        group => format!("{}.{group}", text("resource")),
    };
    let conditions = migration["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let told = conditions.iter().filter(|condition| condition["status"] == "True");
    let mut told = told.filter_map(|condition| condition["type"].as_str());
    let state = told.rfind(|kind| matches!(*kind, "Running" | "Failed" | "Succeeded")).unwrap_or("Unknown");
    vec![migration.name().into(), resource.into(), state.into()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_condition_that_holds_is_shown() {
        let conditions = json!([
            {"type": "Running", "status": "False"}, {"type": "Succeeded", "status": "True"}, {"type": "X", "status": "True"},
        ]);
        let object = json!({
            "metadata": {"name": "m"}, "spec": {"resource": {"group": "apps", "resource": "deployments"}},
            "status": {"conditions": conditions},
        });
        assert_eq!(row(&object), ["m", "deployments.apps", "Succeeded"].map(Cell::from));
        let fresh = json!({"metadata": {"name": "m"}, "spec": {"resource": {"resource": "secrets"}}});
        assert_eq!(row(&fresh), ["m", "secrets", "Unknown"].map(Cell::from));
    }
}
