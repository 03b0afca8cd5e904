//! Rules of CustomResourceDefinitions: a good object, one change at a time, and what upstream (v1.36.4) says to it.

use serde_json::{Value, json};

use crate::testing::Rules;

fn custom_resource_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [
                {
                    "name": "v1",
                    "served": true,
                    "storage": true,
                    "schema": {
                        "openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}},
                    },
                },
            ],
        },
    })
}

#[test]
fn names_of_definitions() {
    let rules = Rules::of(custom_resource_definition());
    let names = |inner: Value| json!({"spec": {"names": inner}});
    let spec = |inner: Value| json!({"spec": inner});
    rules.create(
        json!({"metadata": {"name": "gadgets.example.com"}}),
        &["metadata.name: Invalid value: \"gadgets.example.com\": must be spec.names.plural+\".\"+spec.group"],
    );
    rules.create(
        spec(json!({"group": ""})),
        &[
            "metadata.name: Invalid value: \"widgets.example.com\": must be spec.names.plural+\".\"+spec.group",
            "spec.group: Required value",
        ],
    );
    rules.create(
        spec(json!({"group": "example"})),
        &[
            "metadata.name: Invalid value: \"widgets.example.com\": must be spec.names.plural+\".\"+spec.group",
            "spec.group: Invalid value: \"example\": should be a domain with at least one dot",
        ],
    );
    rules.create(
        spec(json!({"scope": "Everywhere"})),
        &["spec.scope: Unsupported value: \"Everywhere\": supported values: \"Cluster\", \"Namespaced\""],
    );
    rules.create(
        names(json!({"kind": ""})),
        &[
            "spec.names.singular: Required value",
            "spec.names.kind: Required value",
            "spec.names.listKind: Required value",
        ],
    );
    rules.create(
        names(json!({"kind": "My Widget"})),
        &[
            "spec.names.singular: Invalid value: \"my widget\": a DNS-1035 label must consist of lower \
             case alphanumeric characters or '-', start with an alphabetic character, and end with an \
             alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
             '[a-z]([-a-z0-9]*[a-z0-9])?')",
            "spec.names.kind: Invalid value: \"My Widget\": may have mixed case, but should otherwise \
             match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with \
             an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or \
             'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            "spec.names.listKind: Invalid value: \"My WidgetList\": may have mixed case, but should \
             otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
             start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  \
             or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        ],
    );
    rules.create(
        names(json!({"listKind": "Widget"})),
        &["spec.names.listKind: Invalid value: \"Widget\": kind and listKind may not be the same"],
    );
    rules.create(
        names(json!({"singular": "Widget"})),
        &["spec.names.singular: Invalid value: \"Widget\": a DNS-1035 label must consist of lower case \
             alphanumeric characters or '-', start with an alphabetic character, and end with an \
             alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
             '[a-z]([-a-z0-9]*[a-z0-9])?')"],
    );
    rules.create(
        names(json!({"shortNames": ["wi", "W"]})),
        &["spec.names.shortNames[1]: Invalid value: \"W\": a DNS-1035 label must consist of lower case \
             alphanumeric characters or '-', start with an alphabetic character, and end with an \
             alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
             '[a-z]([-a-z0-9]*[a-z0-9])?')"],
    );
    rules.create(
        names(json!({"categories": ["all", "A_B"]})),
        &["spec.names.categories[1]: Invalid value: \"A_B\": a DNS-1035 label must consist of lower case \
             alphanumeric characters or '-', start with an alphabetic character, and end with an \
             alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
             '[a-z]([-a-z0-9]*[a-z0-9])?')"],
    );
}

#[test]
fn versions_of_definitions() {
    let rules = Rules::of(custom_resource_definition());
    let version = |inner: Value| json!({"spec": {"versions": [inner]}});
    let spec = |inner: Value| json!({"spec": inner});
    rules.create(version(json!({"storage": false})), &[
            "spec.versions: Invalid value: \
             [{\"Name\":\"v1\",\"Served\":true,\"Storage\":false,\"Deprecated\":false,\"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}]: \
             must have exactly one version marked as storage version",
            "status.storedVersions: Invalid value: null: must have at least one stored version",
        ]);
    rules.create(
        version(json!({"deprecationWarning": "old"})),
        &["spec.versions[0].deprecationWarning: Invalid value: \"old\": can only be set for deprecated \
             versions"],
    );
    rules.create(
        version(json!({"deprecated": true, "deprecationWarning": ""})),
        &["spec.versions[0].deprecationWarning: Invalid value: \"\": must not be an empty string"],
    );
    rules.create(
        version(json!({"deprecated": true, "deprecationWarning": "a\u{7}b"})),
        &["spec.versions[0].deprecationWarning: Invalid value: \"a\\u0007b\": must only contain \
             printable UTF-8 characters; non-printable character found at index 1"],
    );
    rules.create(version(json!({"deprecated": true, "deprecationWarning": "go to v2"})), &[]);
    rules.create(
        spec(json!({"preserveUnknownFields": true})),
        &["spec.preserveUnknownFields: Invalid value: true: cannot set to true, set \
             x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"],
    );
}

#[test]
fn columns_of_definitions() {
    let rules = Rules::of(custom_resource_definition());
    let version = |inner: Value| json!({"spec": {"versions": [inner]}});
    rules.create(
        version(json!({"additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]})),
        &[],
    );
    rules.create(
        version(json!({"additionalPrinterColumns": [{"name": "", "type": "integer", "jsonPath": ".spec.size"}]})),
        &["spec.additionalPrinterColumns[0].name: Required value"],
    );
    rules.create(
        version(json!({"additionalPrinterColumns": [{"name": "Size", "type": "", "jsonPath": ""}]})),
        &[
            "spec.additionalPrinterColumns[0].type: Required value: must be one of \
             boolean,date,integer,number,string",
            "spec.additionalPrinterColumns[0].JSONPath: Required value",
        ],
    );
    rules.create(version(json!({"additionalPrinterColumns": [{"name": "Size", "type": "number", "format": "roman", "jsonPath": "spec.size"}]})), &[
            "spec.additionalPrinterColumns[0].format: Invalid value: \"roman\": must be one of \
             byte,date,date-time,double,float,int32,int64,password",
            "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"spec.size\": must be a simple \
             json path starting with .",
        ]);
    rules.create(
        version(json!({"additionalPrinterColumns": [{"name": "Size", "type": "size", "jsonPath": "{.spec}"}]})),
        &[
            "spec.additionalPrinterColumns[0].type: Invalid value: \"size\": must be one of \
             boolean,date,integer,number,string",
            "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"{.spec}\": must be a simple json \
             path starting with .",
        ],
    );
}

#[test]
fn subresources_of_definitions() {
    let rules = Rules::of(custom_resource_definition());
    let version = |inner: Value| json!({"spec": {"versions": [inner]}});
    rules.create(version(json!({"subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}}})), &[]);
    rules.create(
        version(json!({"subresources": {"scale": {"specReplicasPath": "", "statusReplicasPath": ""}}})),
        &[
            "spec.subresources.scale.specReplicasPath: Required value",
            "spec.subresources.scale.statusReplicasPath: Required value",
        ],
    );
    rules.create(version(json!({"subresources": {"scale": {"specReplicasPath": ".status.replicas", "statusReplicasPath": ".spec.replicas", "labelSelectorPath": ".metadata.selector"}}})), &[
            "spec.subresources.scale.specReplicasPath: Invalid value: \".status.replicas\": should be a \
             json path under .spec",
            "spec.subresources.scale.statusReplicasPath: Invalid value: \".spec.replicas\": should be a \
             json path under .status",
            "spec.subresources.scale.labelSelectorPath: Invalid value: \".metadata.selector\": should be a \
             json path under either .spec or .status",
        ]);
    rules.create(version(json!({"subresources": {"scale": {"specReplicasPath": "spec.replicas", "statusReplicasPath": ".status.a[0]"}}})), &[
            "spec.subresources.scale.specReplicasPath: Invalid value: \"spec.replicas\": must be a simple \
             json path starting with .",
        ]);
}

#[test]
fn conversions_of_definitions() {
    let rules = Rules::of(custom_resource_definition());
    let conversion = |inner: Value| json!({"spec": {"conversion": inner}});
    rules.create(
        conversion(json!({"strategy": "Magic"})),
        &["spec.conversion.strategy: Unsupported value: \"Magic\": supported values: \"None\", \"Webhook\""],
    );
    rules.create(conversion(json!({"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://a/b"}}})), &[
            "spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to \
             Webhook",
            "spec.conversion.conversionReviewVersions: Forbidden: should not be set when strategy is not \
             set to Webhook",
        ]);
    rules.create(
        conversion(json!({"strategy": "Webhook"})),
        &[
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            "spec.conversion.conversionReviewVersions: Required value",
        ],
    );
    rules.create(
        conversion(json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {}}})),
        &["spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required"],
    );
    rules.create(conversion(json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "http://a/b"}}})), &[
            "spec.conversion.webhookClientConfig.url: Invalid value: \"http\": 'https' is the only allowed \
             URL scheme; desired format: https://host[/path]",
        ]);
    rules.create(conversion(json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v2"], "clientConfig": {"url": "https://a/b"}}})), &[
            "spec.conversion.conversionReviewVersions: Invalid value: [\"v2\"]: must include at least one \
             of v1, v1beta1",
        ]);
    rules.create(conversion(json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1", "v1", "-"], "clientConfig": {"url": "https://a/b"}}})), &[
            "spec.conversion.conversionReviewVersions[1]: Invalid value: \"v1\": duplicate version",
            "spec.conversion.conversionReviewVersions[2]: Invalid value: \"-\": a DNS-1035 label must \
             consist of lower case alphanumeric characters or '-', start with an alphabetic character, and \
             end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation \
             is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        ]);
    rules.create(conversion(json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"service": {"namespace": "n", "name": "s", "port": 0, "path": "x"}}}})), &[
            "spec.conversion.webhookClientConfig.service.port: Invalid value: 0: port is not valid: must \
             be between 1 and 65535, inclusive",
            "spec.conversion.webhookClientConfig.service.path: Invalid value: \"x\": must start with a '/'",
            "spec.conversion.webhookClientConfig.service.path: Invalid value: \"x\": segment[0] may not be \
             empty",
        ]);
    rules.create(conversion(json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://u:p@a/b?c#d"}}})), &[
            "spec.conversion.webhookClientConfig.url: Invalid value: \"u:p\": user information is not \
             permitted in the URL",
            "spec.conversion.webhookClientConfig.url: Invalid value: \"d\": fragments are not permitted in \
             the URL",
            "spec.conversion.webhookClientConfig.url: Invalid value: \"c\": query parameters are not \
             permitted in the URL",
        ]);
}

#[test]
fn selectable_fields_of_definitions() {
    let rules = Rules::of(custom_resource_definition());
    let version = |inner: Value| json!({"spec": {"versions": [inner]}});
    rules.create(version(json!({"schema": {"openAPIV3Schema": {"properties": {"spec": {"properties": {"color": {"type": "string"}, "size": {"type": "integer"}, "parts": {"type": "array", "items": {"type": "string"}}}}}}}, "selectableFields": [{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}]})), &[]);
    rules.create(version(json!({"schema": {"openAPIV3Schema": {"properties": {"spec": {"properties": {"color": {"type": "string"}}}}}}, "selectableFields": [{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.color"}]})), &["spec.selectableFields[1].jsonPath: Duplicate value: \".spec.color\""]);
}

#[test]
fn schemas_are_structural() {
    let rules = Rules::of(custom_resource_definition());
    let schema_of_spec = |inner: Value| json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {"properties": {"spec": inner}}}}]}});
    let schema = |inner: Value| json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": inner}}]}});
    rules.create(
        schema(json!({"type": ""})),
        &["spec.validation.openAPIV3Schema.type: Required value: must not be empty at the root"],
    );
    rules.create(
        schema(json!({"type": "string"})),
        &["spec.validation.openAPIV3Schema.type: Invalid value: \"string\": must be object at the root"],
    );
    rules.create(
        schema_of_spec(json!({"type": ""})),
        &["spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for \
             specified object fields"],
    );
    rules.create(
        schema_of_spec(json!({"type": "thing"})),
        &["spec.validation.openAPIV3Schema.properties[spec].type: Unsupported value: \"thing\": \
             supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\""],
    );
    rules.create(schema_of_spec(json!({"nullable": true})), &[]);
    rules.create(
        schema(json!({"nullable": true})),
        &["spec.validation.openAPIV3Schema.nullable: Forbidden: nullable cannot be true at the root"],
    );
    rules.create(
        schema_of_spec(json!({"properties": {"a": {}}})),
        &["spec.validation.openAPIV3Schema.properties[spec].properties[a].type: Required value: must not \
             be empty for specified object fields"],
    );
    rules.create(
        schema_of_spec(json!({"properties": {"a": {"type": "array"}}})),
        &["spec.validation.openAPIV3Schema.properties[spec].properties[a].items: Required value: must be \
             specified"],
    );
    rules.create(
        schema_of_spec(json!({"properties": {"a": {"type": "array", "items": {}}}})),
        &["spec.validation.openAPIV3Schema.properties[spec].properties[a].items.type: Required value: \
             must not be empty for specified array items"],
    );
    rules.create(schema_of_spec(json!({"additionalProperties": false})), &[]);
    rules.create(
        schema_of_spec(json!({"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}})),
        &["spec.validation.openAPIV3Schema.properties[spec].additionalProperties: Forbidden: \
             additionalProperties and properties are mutual exclusive"],
    );
    rules.create(schema_of_spec(json!({"additionalProperties": {"type": "string"}})), &[]);
    rules.create(schema_of_spec(json!({"properties": {"a": {"x-kubernetes-int-or-string": true}}})), &[]);
    rules.create(
        schema_of_spec(json!({"properties": {"a": {"x-kubernetes-int-or-string": true, "type": "string"}}})),
        &[],
    );
    rules.create(schema_of_spec(json!({"x-kubernetes-preserve-unknown-fields": true})), &[]);
    rules.create(
        schema_of_spec(json!({"properties": {"a": {"type": "string", "uniqueItems": true}}})),
        &["spec.validation.openAPIV3Schema.properties[spec].properties[a].uniqueItems: Forbidden: \
             uniqueItems cannot be set to true since the runtime complexity becomes quadratic"],
    );
    rules.create(
        schema_of_spec(json!({"$ref": "#/a"})),
        &["spec.validation.openAPIV3Schema.properties[spec].$ref: Forbidden: $ref is not supported"],
    );
    rules.create(
        schema_of_spec(json!({"definitions": {"a": {}}})),
        &["spec.validation.openAPIV3Schema.properties[spec].definitions: Forbidden: definitions is not \
             supported"],
    );
    rules.create(
        schema_of_spec(json!({"allOf": [{"type": "object"}]})),
        &["spec.validation.openAPIV3Schema.properties[spec].allOf[0].type: Forbidden: must be empty to \
             be structural"],
    );
    rules.create(
        schema_of_spec(json!({"not": {"description": "no"}})),
        &["spec.validation.openAPIV3Schema.properties[spec].not.description: Forbidden: must be empty to \
             be structural"],
    );
    rules.create(
        schema_of_spec(json!({"oneOf": [{"default": {}}]})),
        &["spec.validation.openAPIV3Schema.properties[spec].oneOf[0].default: Forbidden: must be \
             undefined to be structural"],
    );
    rules.create(
        schema_of_spec(json!({"x-kubernetes-embedded-resource": true})),
        &["spec.validation.openAPIV3Schema.properties[spec].properties: Required value: must not be \
             empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"],
    );
    rules.create(
        schema_of_spec(json!({"x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true})),
        &[],
    );
    rules.create(
        schema(json!({"properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}})),
        &["spec.validation.openAPIV3Schema.properties[metadata]: Forbidden: must not specify anything \
             other than name and generateName, but metadata is implicitly specified"],
    );
    rules.create(schema(json!({"properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}}}})), &[]);
    rules.create(
        schema(json!({"properties": {"kind": {"type": "integer"}}})),
        &["spec.validation.openAPIV3Schema.properties[kind].type: Invalid value: \"integer\": must be string"],
    );
}

#[test]
fn lists_and_maps_of_schemas() {
    let rules = Rules::of(custom_resource_definition());
    let schema_of_spec = |inner: Value| json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {"properties": {"spec": inner}}}}]}});
    rules.create(schema_of_spec(json!({"properties": {"a": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}}})), &[]);
    rules.create(schema_of_spec(json!({"properties": {"a": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"}}})), &[
            "spec.validation.openAPIV3Schema.properties[spec].properties[a].x-kubernetes-list-type: \
             Unsupported value: \"bag\": supported values: \"atomic\", \"set\", \"map\"",
        ]);
    rules.create(
        schema_of_spec(json!({"properties": {"a": {"type": "object", "x-kubernetes-list-type": "set"}}})),
        &["spec.validation.openAPIV3Schema.properties[spec].properties[a].type: Invalid value: \
             \"object\": must be array if x-kubernetes-list-type is specified"],
    );
    rules.create(schema_of_spec(json!({"properties": {"a": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"}}})), &[
            "spec.validation.openAPIV3Schema.properties[spec].properties[a].items.x-kubernetes-map-type: \
             Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
        ]);
    rules.create(schema_of_spec(json!({"properties": {"a": {"type": "array", "items": {"type": "string", "nullable": true}, "x-kubernetes-list-type": "set"}}})), &[
            "spec.validation.openAPIV3Schema.properties[spec].properties[a].items.nullable: Forbidden: \
             cannot be nullable when x-kubernetes-list-type is set",
        ]);
    rules.create(schema_of_spec(json!({"properties": {"a": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}}})), &[
            "spec.validation.openAPIV3Schema.properties[spec].properties[a].x-kubernetes-list-map-keys: \
             Required value: must not be empty if x-kubernetes-list-type is map",
        ]);
    rules.create(schema_of_spec(json!({"properties": {"a": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}}})), &[
            "spec.validation.openAPIV3Schema.properties[spec].properties[a].items.type: Invalid value: \
             \"string\": must be object if parent array's x-kubernetes-list-type is map",
        ]);
    rules.create(schema_of_spec(json!({"properties": {"a": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}}})), &[
            "spec.validation.openAPIV3Schema.properties[spec].properties[a].items.properties[k].default: \
             Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or \
             be a required property",
        ]);
    rules.create(schema_of_spec(json!({"properties": {"a": {"type": "array", "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}}})), &[]);
    rules.create(schema_of_spec(json!({"properties": {"a": {"type": "array", "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "k"]}}})), &[
            "spec.validation.openAPIV3Schema.properties[spec].properties[a].x-kubernetes-list-map-keys: \
             Invalid value: [\"k\",\"k\"]: must not contain duplicate entries",
        ]);
    rules.create(schema_of_spec(json!({"properties": {"a": {"type": "array", "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "object"}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}}})), &[
            "spec.validation.openAPIV3Schema.properties[spec].properties[a].items.properties[k].type: \
             Invalid value: \"object\": must be a scalar type if parent array's x-kubernetes-list-type is \
             map",
        ]);
    rules.create(schema_of_spec(json!({"properties": {"a": {"type": "array", "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["other"]}}})), &[
            "spec.validation.openAPIV3Schema.properties[spec].properties[a].x-kubernetes-list-map-keys: \
             Invalid value: [\"other\"]: entries must all be names of item properties",
        ]);
    rules.create(schema_of_spec(json!({"properties": {"a": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-map-keys": ["k"]}}})), &[
            "spec.validation.openAPIV3Schema.properties[spec].properties[a].x-kubernetes-list-type: \
             Required value: must be map if x-kubernetes-list-map-keys is non-empty",
        ]);
    rules.create(
        schema_of_spec(json!({"x-kubernetes-map-type": "loose"})),
        &["spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-map-type: Unsupported value: \
             \"loose\": supported values: \"atomic\", \"granular\""],
    );
    rules.create(
        schema_of_spec(json!({"properties": {"a": {"type": "string", "x-kubernetes-map-type": "atomic"}}})),
        &["spec.validation.openAPIV3Schema.properties[spec].properties[a].type: Invalid value: \
             \"string\": must be object if x-kubernetes-map-type is specified"],
    );
}

#[test]
fn defaults_in_schemas() {
    let rules = Rules::of(custom_resource_definition());
    let schema_of_spec = |inner: Value| json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {"properties": {"spec": inner}}}}]}});
    let schema = |inner: Value| json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": inner}}]}});
    rules.create(schema_of_spec(json!({"properties": {"a": {"type": "integer", "default": 1}}})), &[]);
    rules.create(
        schema_of_spec(json!({"properties": {"a": {"type": "integer", "default": "x"}}})),
        &["spec.validation.openAPIV3Schema.properties[spec].properties[a].default: Invalid value: \
             \"string\":  in body must be of type integer: \"string\""],
    );
    rules.create(
        schema_of_spec(json!({"properties": {"a": {"type": "integer", "minimum": 5, "default": 1}}})),
        &["spec.validation.openAPIV3Schema.properties[spec].properties[a].default: Invalid value: 1:  in \
             body should be greater than or equal to 5"],
    );
    rules.create(
        schema_of_spec(json!({"default": {"a": 1}})),
        &["spec.validation.openAPIV3Schema.properties[spec].default: Invalid value: {\"a\":1}: must not \
             have unknown fields"],
    );
    rules.create(
        schema_of_spec(json!({"properties": {"a": {"type": "string"}}, "default": {"b": "unknown"}})),
        &["spec.validation.openAPIV3Schema.properties[spec].default: Invalid value: {\"b\":\"unknown\"}: \
             must not have unknown fields"],
    );
    rules.create(
        schema(json!({"properties": {"metadata": {"type": "object", "default": {}}}})),
        &["spec.validation.openAPIV3Schema.properties[metadata].default: Forbidden: must not be set in \
             top-level metadata"],
    );
    rules.create(
        schema_of_spec(json!({"properties": {"a": {"type": "string", "enum": ["x", "y"], "default": "z"}}})),
        &["spec.validation.openAPIV3Schema.properties[spec].properties[a].default: Unsupported value: \
             \"z\": supported values: \"x\", \"y\""],
    );
    rules.create(
        schema_of_spec(json!({"properties": {"a": {"type": "string", "default": null, "nullable": true}}})),
        &[],
    );
}

#[test]
fn rules_in_schemas() {
    let rules = Rules::of(custom_resource_definition());
    let schema_of_spec = |inner: Value| json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {"properties": {"spec": inner}}}}]}});
    rules.create(schema_of_spec(json!({"properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": "self.a > 0", "message": "positive"}]})), &[]);
    rules.create(
        schema_of_spec(json!({"x-kubernetes-validations": [{"rule": ""}]})),
        &["spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Required \
             value: rule is not specified"],
    );
    rules.create(
        schema_of_spec(json!({"x-kubernetes-validations": [{"rule": "true", "message": "a\nb"}]})),
        &["spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].message: Invalid \
             value: \"a\\nb\": must not contain line breaks"],
    );
    rules.create(
        schema_of_spec(json!({"x-kubernetes-validations": [{"rule": "true", "message": " "}]})),
        &["spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].message: Invalid \
             value: \" \": must be non-empty if specified"],
    );
    rules.create(
        schema_of_spec(json!({"x-kubernetes-validations": [{"rule": "true", "reason": "Because"}]})),
        &["spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].reason: \
             Unsupported value: \"Because\": supported values: \"FieldValueDuplicate\", \
             \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\""],
    );
    rules.create(
        schema_of_spec(json!({"x-kubernetes-validations": [{"rule": "true", "fieldPath": ".nope"}]})),
        &["spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].fieldPath: \
             Invalid value: \".nope\": must be a valid path"],
    );
    rules.create(schema_of_spec(json!({"properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": "true", "fieldPath": ".a"}]})), &[]);
    rules.create(schema_of_spec(json!({"x-kubernetes-validations": [{"rule": "1"}]})), &[
            "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Invalid \
             value: \
             {\"Rule\":\"1\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: \
             cel expression must evaluate to a bool",
        ]);
    rules.create(
        schema_of_spec(json!({"x-kubernetes-validations": [{"rule": "true", "optionalOldSelf": true}]})),
        &["spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].optionalOldSelf: \
             Invalid value: true: may not be set if oldSelf is not used in rule"],
    );
    rules.create(schema_of_spec(json!({"x-kubernetes-validations": [{"rule": "true", "message": "m"}, {"rule": "true", "messageExpression": "1"}]})), &[
            "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[1].messageExpression: \
             Invalid value: \
             {\"Rule\":\"true\",\"Message\":\"\",\"MessageExpression\":\"1\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: \
             messageExpression must evaluate to a string",
        ]);
}

#[test]
fn what_of_a_definition_stays() {
    let rules = Rules::of(custom_resource_definition());
    let names = |inner: Value| json!({"spec": {"names": inner}});
    let spec = |inner: Value| json!({"spec": inner});
    rules
        .update(spec(json!({"group": "other.com"})), &["spec.group: Invalid value: \"other.com\": field is immutable"]);
    rules.update(
        names(json!({"plural": "gadgets"})),
        &["spec.names.plural: Invalid value: \"gadgets\": field is immutable"],
    );
    rules.update(names(json!({"kind": "Gadget"})), &[]);
    rules.update(
        spec(json!({"preserveUnknownFields": true})),
        &["spec.preserveUnknownFields: Invalid value: true: cannot set to true, set \
             x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"],
    );
}
