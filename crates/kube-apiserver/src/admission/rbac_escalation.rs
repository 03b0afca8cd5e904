//! Nobody grants what they do not hold. Upstream asks this in the storage of roles and bindings; here it is one
//! more question of admission. The checks themselves are the authorizer's.

use machinery::status::Status;
use serde_json::Value;

use super::{Operation, Plugin, Request};

pub struct RbacEscalation;

#[async_trait::async_trait]
impl Plugin for RbacEscalation {
    fn name(&self) -> &'static str {
        "RBACEscalation"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        let Some(object) = object.filter(|_| writes && request.resource.kind.group == "rbac.authorization.k8s.io")
        else {
            return Ok(());
        };
        let (authorizer, views) = (&request.app.authorizer, &request.app.views);
        match request.resource.kind.plural {
            plural @ ("roles" | "clusterroles") => {
                authorizer.check_role_write(request.user, plural, object, request.old, views).await
            }
            plural @ ("rolebindings" | "clusterrolebindings") => {
                authorizer.check_binding_write(request.user, plural, object, request.old, views).await
            }
            _ => Ok(()),
        }
    }
}
