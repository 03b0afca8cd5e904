//! What expressions may name: the variables of each place that takes expressions, with their types.

use serde_json::Value;

use super::types::Type;

/// The variables of an expression, and what else it may use.
#[derive(Debug, Default)]
pub struct Env<'a> {
    variables: Vec<(Box<str>, Type<'a>)>,
    /// `cel.bind`.
    pub(super) has_bindings: bool,
    /// `Object{...}`, `JSONPatch{...}` and `jsonpatch.escapeKey`.
    pub(super) has_patches: bool,
}

impl<'a> Env<'a> {
    pub fn with(mut self, name: &str, of: Type<'a>) -> Env<'a> {
        self.variables.push((name.into(), of));
        self
    }

    /// Rules of a schema: `self`, and `oldSelf`, which may be an optional. Nothing where expressions cannot see such
    /// values. The root of an object of the API has fields that its schema does not declare.
    pub fn of_rules(schema: &'a Value, is_root: bool, optional_old: bool) -> Option<Env<'a>> {
        let own = Type::of_schema(schema, "selfType", is_root)?;
        let old = if optional_old { Type::optional(own.clone()) } else { own.clone() };
        Some(Env::default().with("self", own).with("oldSelf", old))
    }

    /// Admission policies and the match conditions of webhooks: `request` and `namespaceObject`; objects are what they
    /// are, unless their schema is known.
    pub fn of_admission(object: Type<'a>) -> Env<'a> {
        Env::default()
            .with("object", object.clone())
            .with("oldObject", object)
            .with("namespaceObject", namespace())
            .with("request", admission_request())
    }

    pub fn with_authorizer(self) -> Env<'a> {
        self.with("authorizer", Type::named("kubernetes.authorization.Authorizer"))
            .with("authorizer.requestResource", Type::named("kubernetes.authorization.ResourceCheck"))
    }

    /// The variables of a policy, each with the type of its expression.
    pub fn with_composed(self, variables: &[(&str, Type<'a>)]) -> Env<'a> {
        self.with("variables", Type::object("kubernetes.variables", variables.to_vec()))
    }

    pub fn with_patches(mut self) -> Env<'a> {
        self.has_patches = true;
        self
    }

    /// Selectors of devices.
    pub fn of_devices() -> Env<'a> {
        let by_domain = |value: Type<'a>| Type::map(Type::map(value));
        let device = vec![
            ("driver", Type::Text),
            ("attributes", by_domain(Type::Any)),
            ("capacity", by_domain(Type::named("kubernetes.Quantity"))),
            ("allowMultipleAllocations", Type::Bool),
        ];
        let mut env = Env::default().with("device", Type::object("kubernetes.DRADevice", device));
        env.has_bindings = true;
        env
    }

    /// Claims of a token.
    pub fn of_claims() -> Env<'a> {
        Env::default().with("claims", Type::map(Type::Any))
    }

    /// The user that a token stands for.
    pub fn of_user() -> Env<'a> {
        Env::default().with("user", user_info())
    }

    /// Match conditions of authorization webhooks.
    pub fn of_authorization() -> Env<'a> {
        Env::default().with("request", access_review())
    }

    pub(super) fn find(&self, name: &str) -> Option<&Type<'a>> {
        self.variables.iter().find(|(known, _)| &**known == name).map(|(_, found)| found)
    }
}

fn texts<'a>(names: &[&'static str]) -> Vec<(&'static str, Type<'a>)> {
    names.iter().map(|name| (*name, Type::Text)).collect()
}

fn user_info<'a>() -> Type<'a> {
    let mut fields = texts(&["username", "uid"]);
    fields.push(("groups", Type::list(Type::Text)));
    fields.push(("extra", Type::map(Type::list(Type::Text))));
    Type::object("kubernetes.UserInfo", fields)
}

fn admission_request<'a>() -> Type<'a> {
    let kind = || Type::object("kubernetes.GroupVersionKind", texts(&["group", "version", "kind"]));
    let resource = || Type::object("kubernetes.GroupVersionResource", texts(&["group", "version", "resource"]));
    let mut fields = texts(&["subResource", "requestSubResource", "name", "namespace", "operation"]);
    fields.extend([
        ("kind", kind()),
        ("resource", resource()),
        ("requestKind", kind()),
        ("requestResource", resource()),
        ("userInfo", user_info()),
        ("dryRun", Type::Bool),
        ("options", Type::Dyn),
    ]);
    Type::object("kubernetes.AdmissionRequest", fields)
}

fn namespace<'a>() -> Type<'a> {
    let mut condition = texts(&["status", "type", "message", "reason"]);
    condition.push(("lastTransitionTime", Type::Timestamp));
    let condition = Type::object("kubernetes.NamespaceCondition", condition);
    let status = vec![("conditions", Type::list(condition)), ("phase", Type::Text)];
    let mut metadata = texts(&["name", "generateName", "namespace", "UID", "resourceVersion"]);
    metadata.extend([
        ("labels", Type::map(Type::Text)),
        ("annotations", Type::map(Type::Text)),
        ("creationTimestamp", Type::Timestamp),
        ("deletionGracePeriodSeconds", Type::Int),
        ("deletionTimestamp", Type::Timestamp),
        ("generation", Type::Int),
        ("finalizers", Type::list(Type::Text)),
    ]);
    let fields = vec![
        ("metadata", Type::object("kubernetes.NamespaceMetadata", metadata)),
        ("spec", Type::object("kubernetes.NamespaceSpec", vec![("finalizers", Type::list(Type::Text))])),
        ("status", Type::object("kubernetes.NamespaceStatus", status)),
    ];
    Type::object("kubernetes.Namespace", fields)
}

fn access_review<'a>() -> Type<'a> {
    let requirement = || {
        let mut fields = texts(&["key", "operator"]);
        fields.push(("values", Type::list(Type::Text)));
        Type::object("kubernetes.SelectorRequirement", fields)
    };
    let selector =
        |name: &str| Type::object(name, vec![("rawSelector", Type::Text), ("requirements", Type::list(requirement()))]);
    let mut resource = texts(&["namespace", "verb", "group", "version", "resource", "subresource", "name"]);
    resource.push(("fieldSelector", selector("kubernetes.FieldSelectorAttributes")));
    resource.push(("labelSelector", selector("kubernetes.LabelSelectorAttributes")));
    let mut fields = texts(&["user", "uid"]);
    fields.extend([
        ("resourceAttributes", Type::object("kubernetes.ResourceAttributes", resource)),
        ("nonResourceAttributes", Type::object("kubernetes.NonResourceAttributes", texts(&["path", "verb"]))),
        ("groups", Type::list(Type::Text)),
        ("extra", Type::map(Type::list(Type::Text))),
    ]);
    Type::object("kubernetes.SubjectAccessReviewSpec", fields)
}
