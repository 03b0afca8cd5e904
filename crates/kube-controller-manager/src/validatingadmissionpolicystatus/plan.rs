//! Which expressions of a policy are wrong, and how that is said.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::{
    ExpressionWarning, TypeChecking, ValidatingAdmissionPolicy, ValidatingAdmissionPolicySpec,
};
use machinery::cel::{Env, Program, Type};
use reconcile::{Key, Plan, Write};
use serde_json::{Value, json};

/// As upstream: of policies for more, the first.
pub(super) const KINDS_MAX: usize = 10;
const ALL: char = '*';

/// A resource that a policy names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Resource {
    pub group: String,
    pub version: String,
    pub plural: String,
}

/// A kind that a policy looks at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Looked {
    pub group: String,
    pub version: String,
    pub kind: String,
}

impl Looked {
    /// As upstream prints it.
    fn shown(&self) -> String {
        match self.group.as_str() {
            "" => format!("/{}, Kind={}", self.version, self.kind),
            group => format!("{group}/{}, Kind={}", self.version, self.kind),
        }
    }
}

/// Whether the policy as it is now was checked before.
pub(super) fn is_checked(policy: &ValidatingAdmissionPolicy) -> bool {
    let seen = policy.status.as_ref();
    seen.is_some_and(|status| {
        status.observed_generation == policy.metadata.generation && status.type_checking.is_some()
    })
}

/// What is told of a policy, by the schemas of the kinds that it names.
pub(super) fn plan(policy: &ValidatingAdmissionPolicy, schemas: &BTreeMap<Looked, Arc<Value>>) -> Plan {
    let generation = policy.metadata.generation;
    let warnings = warnings(policy, schemas);
    let checking = TypeChecking { expression_warnings: (!warnings.is_empty()).then_some(warnings) };
    let metadata = json!({"uid": policy.metadata.uid, "resourceVersion": policy.metadata.resource_version});
    let mut status = json!({"observedGeneration": generation, "typeChecking": checking});
    if checking.expression_warnings.is_none() {
        // A merge patch would keep those of the text before.
        status["typeChecking"] = json!({"expressionWarnings": null});
    }
    let patch = json!({"metadata": metadata, "status": status});
    let key = Key::of(&policy.metadata);
    Plan::one(Write::merge_patch_sub::<ValidatingAdmissionPolicy>(&key, "status", patch).accept(&["NotFound"]))
}

fn warnings(policy: &ValidatingAdmissionPolicy, schemas: &BTreeMap<Looked, Arc<Value>>) -> Vec<ExpressionWarning> {
    let Some(spec) = &policy.spec else { return Vec::new() };
    let mut found = Vec::new();
    for (index, validation) in spec.validations.iter().flatten().enumerate() {
        let texts = [
            ("expression", Some(&validation.expression)),
            ("messageExpression", validation.message_expression.as_ref()),
        ];
        for (field, text) in texts {
            let Some(text) = text.filter(|text| !text.is_empty()) else { continue };
            let warning: String = schemas
                .iter()
                .filter_map(|(of, schema)| Some(format!("{}: {}\n", of.shown(), wrong(text, spec, &of.kind, schema)?)))
                .collect::<Vec<String>>()
                .join("\n");
            if !warning.is_empty() {
                found.push(ExpressionWarning { field_ref: format!("spec.validations[{index}].{field}"), warning });
            }
        }
    }
    found
}

/// What is wrong with an expression for objects of that schema.
fn wrong(text: &str, spec: &ValidatingAdmissionPolicySpec, kind: &str, schema: &Value) -> Option<String> {
    let object = Type::of_schema(schema, kind, true).unwrap_or(Type::Dyn);
    let mut composed = Vec::new();
    for variable in spec.variables.iter().flatten() {
        let found = Program::check(&variable.expression, &env(&object, spec, &composed));
        composed.push((variable.name.as_str(), found.map_or(Type::Dyn, |found| found.composed())));
    }
    Program::check(text, &env(&object, spec, &composed)).err().map(|issues| issues.to_string())
}

fn env<'a>(object: &Type<'a>, spec: &ValidatingAdmissionPolicySpec, composed: &[(&str, Type<'a>)]) -> Env<'a> {
    let env = Env::of_admission(object.clone()).with_authorizer().with_composed(composed);
    if spec.param_kind.is_some() { env.with("params", Type::Dyn) } else { env }
}

/// What the rules name one by one; rules for everything, and for parts of objects, name nothing.
pub(super) fn resources(policy: &ValidatingAdmissionPolicy) -> BTreeSet<Resource> {
    let constraints = policy.spec.as_ref().and_then(|spec| spec.match_constraints.as_ref());
    let mut found = BTreeSet::new();
    for rule in constraints.iter().flat_map(|constraints| constraints.resource_rules.iter().flatten()) {
        let lists = [&rule.api_groups, &rule.api_versions];
        if lists.iter().any(|list| list.iter().flatten().any(|text| text.contains(ALL))) {
            continue;
        }
        for group in rule.api_groups.iter().flatten() {
            for version in rule.api_versions.iter().flatten() {
                let plurals = rule.resources.iter().flatten().filter(|plural| !plural.contains([ALL, '/']));
                found.extend(plurals.map(|plural| Resource {
                    group: group.clone(),
                    version: version.clone(),
                    plural: plural.clone(),
                }));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::shapes;
    use super::*;

    fn policy(rules: Value, expressions: &[&str], status: Value) -> ValidatingAdmissionPolicy {
        let validations: Vec<Value> = expressions.iter().map(|text| json!({"expression": text})).collect();
        let object = json!({
            "metadata": {"name": "p", "generation": 2}, "status": status,
            "spec": {"matchConstraints": {"resourceRules": rules}, "validations": validations},
        });
        serde_json::from_value(object).expect("a policy")
    }

    fn rules(group: &str, resources: &[&str]) -> Value {
        json!([{"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": resources}])
    }

    /// Those of the built-in kinds that a policy names, and one custom one.
    fn schemas(policy: &ValidatingAdmissionPolicy) -> BTreeMap<Looked, Arc<Value>> {
        let kind_and_schema = |resource: Resource| {
            let Resource { group, version, plural } = resource;
            let custom = json!({"type": "object", "properties": {"spec": {
                "type": "object", "properties": {"replicas": {"type": "integer"}},
            }}});
            let (kind, schema) = match plural.as_str() {
                "crontabs" => ("CronTab", custom),
                _ => {
                    let kind = shapes::kind_of(&group, &version, &plural)?;
                    (kind, shapes::of(&group, &version, kind)?)
                }
            };
            Some((Looked { group, version, kind: kind.into() }, Arc::new(schema)))
        };
        resources(policy).into_iter().filter_map(kind_and_schema).collect()
    }

    #[test]
    fn wrong_names_are_told_with_their_place() {
        let check = |rules: Value, expressions: &[&str], expected: &[(&str, &str)]| {
            let policy = policy(rules, expressions, json!({}));
            let found = warnings(&policy, &schemas(&policy));
            let found: Vec<(&str, &str)> =
                found.iter().map(|one| (one.field_ref.as_str(), one.warning.as_str())).collect();
            assert_eq!(found, expected);
        };
        let fine = "object.spec.replicas <= 5 && object.spec.template.spec.containers.all(c, c.image != '')";
        check(rules("apps", &["deployments"]), &[fine, "has(object.metadata.labels.app)"], &[]);
        let slip = "object.spec.replica <= 5";
        let told = "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'replica'\n | object.spec.replica <= 5\n | ...........^\n";
        check(rules("apps", &["deployments"]), &[fine, slip], &[("spec.validations[1].expression", told)]);
        let pods =
            "/v1, Kind=Pod: ERROR: <input>:1:1: undeclared reference to 'pod' (in container '')\n | pod.spec\n | ^\n";
        check(rules("", &["pods"]), &["pod.spec"], &[("spec.validations[0].expression", pods)]);
        check(rules("", &["*"]), &[slip], &[]);
        check(rules("", &["pods/status"]), &[slip], &[]);
        check(rules("example.com", &["things"]), &[slip], &[]);
    }

    #[test]
    fn operators_that_mix_types_are_told() {
        let mut confused = policy(rules("apps", &["deployments"]), &["object.spec.replicas > '1'"], json!({}));
        let validations = confused.spec.as_mut().and_then(|spec| spec.validations.as_mut()).expect("validations");
        validations[0].message_expression = Some("'got ' + object.spec.replicas".to_owned());
        let found = warnings(&confused, &schemas(&confused));
        let told = [
            (
                "spec.validations[0].expression",
                "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'\n | object.spec.replicas > '1'\n | .....................^\n",
            ),
            (
                "spec.validations[0].messageExpression",
                "apps/v1, Kind=Deployment: ERROR: <input>:1:8: found no matching overload for '_+_' applied to '(string, int)'\n | 'got ' + object.spec.replicas\n | .......^\n",
            ),
        ];
        let found: Vec<(&str, &str)> = found.iter().map(|one| (&*one.field_ref, &*one.warning)).collect();
        assert_eq!(found, told);
        let texts = ["object.spec.replicas > '1'", "object.spec.maxRetries < 10", "object.spec.replicas > 1"];
        let custom = policy(rules("stable.example.com", &["crontabs"]), &texts, json!({}));
        let found = warnings(&custom, &schemas(&custom));
        let fields: Vec<&str> = found.iter().map(|one| one.field_ref.as_str()).collect();
        assert_eq!(fields, ["spec.validations[0].expression", "spec.validations[1].expression"]);
        assert!(found[1].warning.contains("undefined field 'maxRetries'"), "{}", found[1].warning);
    }

    #[test]
    fn a_policy_is_looked_at_once_per_generation() {
        let writes = |status: Value| {
            let policy = policy(rules("", &["pods"]), &["true"], status);
            let plan = plan(&policy, &schemas(&policy));
            let write = plan.writes.first().filter(|_| !is_checked(&policy));
            write.map(|write| write.body()["status"].clone())
        };
        let said = json!({"observedGeneration": 2, "typeChecking": {"expressionWarnings": null}});
        assert_eq!(writes(json!({})), Some(said.clone()));
        assert_eq!(writes(json!({"observedGeneration": 1, "typeChecking": {}})), Some(said));
        assert_eq!(writes(json!({"observedGeneration": 2, "typeChecking": {}})), None);
    }
}
