use serde_json::json;

use super::*;

const SCHEMA: &str =
    "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#";

/// A template with the elements of `elements`.
pub(crate) fn template(elements: Value) -> Value {
    let mut template = json!({ "$schema": SCHEMA, "contentVersion": "1.0.0.0", "resources": [] });
    let Value::Object(elements) = elements else { panic!("no object") };
    template.as_object_mut().unwrap().extend(elements);
    template
}

fn resource(members: Value) -> Value {
    let mut resource = json!({ "type": "A.B/c", "apiVersion": "2024-01-01", "name": "n" });
    resource.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    template(json!({ "resources": [resource] }))
}

#[test]
fn template_with_every_element_is_parsed() {
    let document = template(json!({
        "metadata": { "_generator": { "name": "bicep" } },
        "functions": [],
        "parameters": {
            "name": { "type": "String", "defaultValue": "[resourceGroup().name]", "metadata": {} },
        },
        "variables": { "a": ["[parameters('name')]"] },
        "resources": [
            {
                "type": "Microsoft.Network/virtualNetworks",
                "apiVersion": "2024-05-01",
                "name": "[parameters('name')]",
                "location": "westeurope",
                "tags": {},
                "comments": "the network",
                "dependsOn": ["other"],
                "condition": true,
                "sku": null,
                "properties": { "addressSpace": {} },
                "resources": [
                    { "type": "subnets", "apiVersion": "2024-05-01", "name": "default", "properties": {} },
                ],
            },
            { "type": "A.B/c", "apiVersion": "2024-01-01", "name": "other", "kind": "x" },
        ],
        "outputs": { "id": { "type": "string", "value": "x", "condition": false } },
    }));
    let parsed = DeploymentTemplate::parse(&document).unwrap();
    assert_eq!(parsed.scope, TemplateScope::ResourceGroup);
    assert_eq!(parsed.content_version, "1.0.0.0");
    let types: Vec<_> =
        parsed.resources.iter().map(|it| (it.resource_type.as_str(), it.parent)).collect();
    assert_eq!(
        types,
        [("Microsoft.Network/virtualNetworks", None), ("subnets", Some(0)), ("A.B/c", None)]
    );
    assert_eq!(
        parsed.resources[1].path.to_string(),
        "properties.template.resources[0].resources[0]"
    );
    let members: Vec<_> = parsed.resources[0].members.iter().map(|(name, _)| name).collect();
    assert_eq!(members, ["location", "tags"], "null is no member");
}

/// Checks the code, the position and a part of the message of the error of each template.
fn assert_rejected(cases: &[(Value, &str, &str, &str)]) {
    for (document, code, path, message) in cases {
        let error = DeploymentTemplate::parse(document).unwrap_err();
        assert_eq!(error.code, *code, "{error}");
        assert_eq!(error.path.to_string(), format!("properties.template{path}"), "{error}");
        assert!(error.message.contains(message), "{error}");
    }
}

#[test]
fn malformed_documents_are_rejected() {
    let content = "InvalidRequestContent";
    let without = |name: &str| {
        let mut document = template(json!({}));
        document.as_object_mut().unwrap().remove(name);
        document
    };
    let parameter = |definition: Value| template(json!({ "parameters": { "p": definition } }));
    assert_rejected(&[
        (json!([]), content, "", "not an object"),
        (without("$schema"), content, "", "Required property '$schema' not found in JSON."),
        (without("contentVersion"), content, "", "Required property 'contentVersion'"),
        (without("resources"), content, ".resources", "Required property 'resources'"),
        (
            template(json!({ "contentVersion": "one" })),
            content,
            ".contentVersion",
            "no version such as '1.0.0.0'",
        ),
        (
            template(json!({ "resource": [] })),
            content,
            ".resource",
            "Could not find member 'resource' on object of type 'Template'. Path 'properties.template.resource'.",
        ),
        (template(json!({ "outputs": [] })), content, ".outputs", "'outputs' is not an object"),
        (
            resource(json!({ "description": "x" })),
            content,
            ".resources[0].description",
            "Could not find member 'description' on object of type 'TemplateResource'.",
        ),
        (resource(json!({ "name": 7 })), content, ".resources[0].name", "must be a string"),
        (resource(json!({ "dependsOn": {} })), content, ".resources[0].dependsOn", "not an array"),
        (parameter(json!({})), content, ".parameters.p", "Required property 'type'"),
        (
            parameter(json!({ "type": "number" })),
            content,
            ".parameters.p.type",
            "'number' is no type",
        ),
        (
            parameter(json!({ "type": "string", "default": 1 })),
            content,
            ".parameters.p.default",
            "on object of type 'TemplateInputParameter'",
        ),
        (
            parameter(json!({ "type": "int", "allowedValues": [] })),
            content,
            ".parameters.p.allowedValues",
            "an array with values",
        ),
        (
            template(json!({ "outputs": { "o": { "type": "int" } } })),
            content,
            ".outputs.o",
            "Required property 'value'",
        ),
    ]);
}

#[test]
fn invalid_templates_are_rejected() {
    let invalid = "InvalidTemplate";
    assert_rejected(&[
        (
            template(
                json!({ "$schema": "https://schema.management.azure.com/schemas/2019-08-01/tenantDeploymentTemplate.json#" }),
            ),
            invalid,
            ".$schema",
            "tenantDeploymentTemplate.json#' is not supported",
        ),
        (
            resource(json!({ "type": "[concat('A.B/', 'c')]" })),
            invalid,
            ".resources[0].type",
            "The type property cannot be an expression.",
        ),
        (
            template(json!({ "parameters": { "p": { "type": "bool", "minLength": 1 } } })),
            invalid,
            ".parameters.p.minLength",
            "only parameters of the types",
        ),
        (
            template(json!({ "parameters": { "p": { "type": "string", "minValue": 1 } } })),
            invalid,
            ".parameters.p.minValue",
            "only parameters of type 'Int'",
        ),
        (
            template(json!({ "variables": { "a": 1, "A": 2 } })),
            invalid,
            ".variables",
            "'a' is defined more than once",
        ),
        (
            resource(json!({ "properties": { "list": [{ "x": "[concat('a'" }, "[concat('a']"] } })),
            invalid,
            ".resources[0].properties.list[1]",
            "expected token 'RightParenthesis' and actual 'EndOfData'",
        ),
    ]);
}

#[test]
fn elements_that_are_not_implemented_are_named_with_their_position() {
    let invalid = "InvalidTemplate";
    let loop_array = json!([{ "name": "x", "count": 2, "input": {} }]);
    let symbolic = json!({ "vnet": { "type": "A.B/c", "apiVersion": "1", "name": "n" } });
    assert_rejected(&[
        (
            template(json!({ "languageVersion": "2.0" })),
            invalid,
            ".languageVersion",
            "'languageVersion'",
        ),
        (template(json!({ "definitions": {} })), invalid, ".definitions", "'definitions'"),
        (template(json!({ "apiProfile": "x" })), invalid, ".apiProfile", "API profiles"),
        (template(json!({ "functions": [{}] })), invalid, ".functions", "user-defined functions"),
        (template(json!({ "resources": symbolic })), invalid, ".resources", "symbolic names"),
        (resource(json!({ "copy": {} })), invalid, ".resources[0].copy", "'copy'"),
        (resource(json!({ "existing": true })), invalid, ".resources[0].existing", "'existing'"),
        (
            resource(json!({ "resourceGroup": "g" })),
            invalid,
            ".resources[0].resourceGroup",
            "nested",
        ),
        (
            resource(json!({ "type": "Microsoft.Resources/deployments" })),
            invalid,
            ".resources[0].type",
            "nested and linked deployments",
        ),
        (
            resource(json!({ "properties": { "disks": { "copy": loop_array } } })),
            invalid,
            ".resources[0].properties.disks.copy",
            "the loop 'copy' at 'properties.template.resources[0].properties.disks.copy'",
        ),
        (
            template(json!({ "variables": { "copy": loop_array } })),
            invalid,
            ".variables.copy",
            "'copy'",
        ),
        (
            template(json!({ "outputs": { "o": { "type": "array", "copy": {} } } })),
            invalid,
            ".outputs.o.copy",
            "'copy'",
        ),
        (
            template(json!({ "parameters": { "p": { "type": "string", "nullable": true } } })),
            invalid,
            ".parameters.p.nullable",
            "'nullable' of language version 2.0",
        ),
        (
            template(json!({ "variables": { "v": "[uniqueString('a')]" } })),
            invalid,
            ".variables.v",
            "'uniqueString' is not implemented by the local Azure. Implemented functions: concat,",
        ),
    ]);
}

#[test]
fn limits_of_templates_are_enforced() {
    let many = |count: usize, value: Value| {
        let named = (0..count).map(|index| (format!("n{index}"), value.clone()));
        Value::Object(named.collect())
    };
    let string = json!({ "type": "string" });
    let output = json!({ "type": "int", "value": 1 });
    let resources = |count: usize| {
        let named =
            |index| json!({ "type": "A.B/c", "apiVersion": "1", "name": format!("n{index}") });
        json!({ "resources": (0..count).map(named).collect::<Vec<_>>() })
    };
    for accepted in [
        json!({ "parameters": many(256, string.clone()) }),
        json!({ "variables": many(512, json!(1)) }),
        json!({ "outputs": many(64, output.clone()) }),
        resources(800),
    ] {
        assert!(DeploymentTemplate::parse(&template(accepted)).is_ok());
    }
    let invalid = "InvalidTemplate";
    assert_rejected(&[
        (
            template(json!({ "parameters": many(257, string) })),
            invalid,
            ".parameters",
            "The number of template parameters limit exceeded. Limit: '256' and actual: '257'.",
        ),
        (
            template(json!({ "variables": many(513, json!(1)) })),
            invalid,
            ".variables",
            "Limit: '512' and actual: '513'",
        ),
        (
            template(json!({ "outputs": many(65, output) })),
            invalid,
            ".outputs",
            "Limit: '64' and actual: '65'",
        ),
        (
            template(resources(801)),
            invalid,
            ".resources",
            "The number of template resources limit exceeded. Limit: '800' and actual: '801'.",
        ),
        (
            template(json!({ "variables": { "v": "x".repeat(4 * 1024 * 1024) } })),
            invalid,
            "",
            "Limit: '4194304' bytes",
        ),
        (
            template(json!({ "variables": { "v": format!("['{}']", "x".repeat(24_576)) } })),
            invalid,
            ".variables.v",
            "Limit: '24576' and actual: '24580'",
        ),
    ]);
}
