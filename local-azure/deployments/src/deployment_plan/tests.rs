use lanyard_emulator_state::authorization::AccessScope;
use serde_json::json;

use super::super::evaluation::tests::{group_scope, subscription_scope};
use super::super::resource_index::ResourceReadError;
use super::super::template::tests::template;
use super::*;

const GROUP: &str =
    "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/examplegroup";

fn plan_with(document: &Value, values: &Value) -> Result<DeploymentPlan, TemplateError> {
    let template = DeploymentTemplate::parse(document)?;
    DeploymentPlan::new(&template, values.as_object().unwrap(), group_scope())
}

fn plan(elements: Value) -> Result<DeploymentPlan, TemplateError> {
    plan_with(&template(elements), &json!({}))
}

/// Resources of the type `A.B/c` with the members of `members`.
fn resources(members: &[Value]) -> Value {
    let resources: Vec<_> = members
        .iter()
        .map(|members| {
            let mut resource = json!({ "type": "A.B/c", "apiVersion": "2024-01-01" });
            resource.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            resource
        })
        .collect();
    json!({ "resources": resources })
}

/// Returns each resource with its id as its only property; `missing` does not exist.
#[derive(Default)]
struct EchoReader {
    reads: Vec<(String, String)>,
}

impl ResourceReader for EchoReader {
    fn read_resource(
        &mut self,
        id: &AccessScope,
        api_version: &str,
    ) -> Result<Value, ResourceReadError> {
        self.reads.push((id.as_str().to_owned(), api_version.to_owned()));
        if id.as_str().ends_with("/missing") {
            let message = format!("The resource '{id}' was not found.");
            return Err(ResourceReadError { code: "ResourceNotFound".to_owned(), message });
        }
        Ok(json!({
            "id": id.as_str(),
            "name": "n",
            "type": "t",
            "location": "westeurope",
            "identity": { "principalId": "p" },
            "properties": { "self": id.as_str(), "list": [1, 2] },
        }))
    }
}

fn stage_names(plan: &DeploymentPlan) -> Vec<Vec<&str>> {
    let name = |place: usize| plan.resources()[place].name.as_str();
    plan.stages().into_iter().map(|stage| stage.into_iter().map(name).collect()).collect()
}

#[test]
fn one_expression_can_return_all_dependencies() {
    let document = template(json!({
        "variables": { "both": ["first", "[resourceId('A.B/c', 'second')]"] },
        "resources": [
            { "type": "A.B/c", "apiVersion": "1", "name": "last", "dependsOn": "[variables('both')]" },
            { "type": "A.B/c", "apiVersion": "1", "name": "first" },
            { "type": "A.B/c", "apiVersion": "1", "name": "second" },
        ],
    }));
    assert_eq!(plan_with(&document, &json!({})).unwrap().resources()[0].dependencies, [1, 2]);
}

#[test]
fn resources_are_ordered_by_explicit_and_implicit_dependencies() {
    let plan = plan(resources(&[
        json!({ "name": "last", "dependsOn": ["MIDDLE", "[resourceId('A.B/c', 'first')]"] }),
        json!({ "name": "middle", "properties": { "x": [{ "y": "[reference('first').self]" }] } }),
        json!({ "name": "first" }),
        json!({ "name": "alone", "dependsOn": [] }),
        json!({ "name": "second", "dependsOn": ["A.B/c/first"] }),
    ]))
    .unwrap();
    assert_eq!(
        stage_names(&plan),
        [vec!["first", "alone"], vec!["middle", "second"], vec!["last"]]
    );
}

#[test]
fn children_precede_parents_on_which_they_do_not_depend() {
    let children = json!([
        { "type": "d", "apiVersion": "1", "name": "child" },
        { "type": "d", "apiVersion": "1", "name": "later", "dependsOn": ["parent"] },
    ]);
    let plan = plan(resources(&[json!({ "name": "parent", "resources": children })])).unwrap();
    assert_eq!(stage_names(&plan), [vec!["parent/child", "parent"], vec!["parent/later"]]);
    let child = &plan.resources()[1];
    assert_eq!(child.id.as_str(), format!("{GROUP}/providers/A.B/c/parent/d/child"));
    assert_eq!(child.resource_type, "A.B/c/d");
}

#[test]
fn extension_resources_have_the_id_of_their_scope() {
    let assignment = |scope: &str| {
        json!({
            "type": "Microsoft.Authorization/roleAssignments",
            "apiVersion": "2022-04-01",
            "name": "n",
            "scope": scope,
        })
    };
    let id = |resource: Value| {
        let plan = plan(json!({ "resources": [resource] }))?;
        Ok::<_, TemplateError>(plan.resources()[0].id.as_str().to_owned())
    };
    let expected =
        format!("{GROUP}/providers/A.B/c/v/providers/Microsoft.Authorization/roleAssignments/n");
    for scope in ["[resourceId('A.B/c', 'v')]", "[format('A.B/c/{0}', 'v')]"] {
        assert_eq!(id(assignment(scope)).unwrap(), expected);
    }
    // The older form names the extension in type and name.
    let older = json!({
        "type": "A.B/c/providers/roleAssignments",
        "apiVersion": "1",
        "name": "v/Microsoft.Authorization/n",
    });
    assert_eq!(id(older).unwrap(), expected);
    for (scope, message) in [
        ("/subscriptions/s/resourceGroups/examplegroup/providers/A.B/c/v", "not in the scope"),
        ("/", "not in the scope"),
        ("a/b", "The resource identificator 'a/b' is malformed."),
    ] {
        let error = id(assignment(scope)).unwrap_err();
        assert!(error.message.contains(message), "{error}");
        assert_eq!(error.path.to_string(), "properties.template.resources[0].scope");
    }
}

#[test]
fn subscription_deployment_creates_resource_groups() {
    let document = template(json!({
        "$schema": "https://schema.management.azure.com/schemas/2018-05-01/subscriptionDeploymentTemplate.json#",
        "resources": [
            {
                "type": "Microsoft.Resources/resourceGroups",
                "apiVersion": "2024-03-01",
                "name": "g",
                "location": "westeurope",
            },
            {
                "type": "A.B/c",
                "apiVersion": "1",
                "name": "n",
                "dependsOn": ["[concat(subscription().id, '/providers/Microsoft.Resources/resourceGroups/g')]"],
            },
        ],
    }));
    let template = DeploymentTemplate::parse(&document).unwrap();
    let plan = DeploymentPlan::new(&template, &Map::new(), subscription_scope()).unwrap();
    let subscription = "/subscriptions/11111111-1111-1111-1111-111111111111";
    let ids: Vec<_> = plan.resources().iter().map(|it| it.id.as_str()).collect();
    assert_eq!(
        ids,
        [format!("{subscription}/resourceGroups/g"), format!("{subscription}/providers/A.B/c/n")]
    );
    assert_eq!(plan.resources()[1].dependencies, [0]);
    let error = DeploymentPlan::new(&template, &Map::new(), group_scope()).unwrap_err();
    assert!(error.message.contains("not supported for a deployment to a resource group"));
    assert_eq!(error.path.to_string(), "properties.template.$schema");
}

#[test]
fn bodies_contain_evaluated_members_without_nulls() {
    let mut plan = plan_with(
        &template(json!({
            "parameters": { "zone": { "type": "string", "defaultValue": "eu" } },
            "variables": { "sku": { "name": "Standard" } },
            "resources": [
                {
                    "type": "A.B/c",
                    "apiVersion": "2024-01-01",
                    "name": "[format('{0}-vnet', parameters('zone'))]",
                    "location": "[resourceGroup().location]",
                    "sku": "[variables('sku')]",
                    "tags": { "[concat('a', 'b')]": "[[x]" },
                    "identity": {
                        "type": "UserAssigned",
                        "userAssignedIdentities": { "[resourceId('A.B/id', 'i')]": {} },
                    },
                    "properties": { "none": null, "all": "[reference('first')]", "list": [{ "none": null }] },
                },
                { "type": "A.B/c", "apiVersion": "2023-03-03", "name": "first", "condition": true },
            ],
        })),
        &json!({ "zone": { "value": "[us]" } }),
    )
    .unwrap();
    let mut reader = EchoReader::default();
    let body = plan.evaluate_body(0, &mut reader).unwrap();
    let first = format!("{GROUP}/providers/A.B/c/first");
    let identity = format!("{GROUP}/providers/A.B/id/i");
    assert_eq!(
        body,
        json!({
            "location": "southcentralus",
            "sku": { "name": "Standard" },
            "tags": { "ab": "[x]" },
            "identity": { "type": "UserAssigned", "userAssignedIdentities": { identity: {} } },
            "properties": { "all": { "self": first, "list": [1, 2] }, "list": [{}] },
        })
    );
    assert_eq!(plan.resources()[0].name, "[us]-vnet", "values of parameters are literals");
    assert_eq!(reader.reads, [(first, "2023-03-03".to_owned())]);
    assert_eq!(plan.evaluate_body(1, &mut reader), Ok(json!({})));
}

#[test]
fn references_read_by_name_and_by_id() {
    let mut plan = plan(json!({
        "resources": [{ "type": "A.B/c", "apiVersion": "2024-01-01", "name": "n" }],
        "outputs": {
            "byName": { "type": "string", "value": "[reference('n').self]" },
            "byId": { "type": "object", "value": "[reference(resourceId('A.B/c', 'n'))]" },
            "byPart": { "type": "int", "value": "[reference('A.B/c/n').list[1]]" },
            "other": { "type": "string", "value": "[reference(resourceId('g', 'A.B/c', 'o'), '2020-02-02').self]" },
            "full": { "type": "object", "value": "[reference('n', '2021-01-01', 'full')]" },
            "secret": { "type": "secureString", "value": "[reference('n').self]" },
            "skipped": { "type": "string", "condition": false, "value": "[reference('n').none]" },
        },
    }))
    .unwrap();
    let mut reader = EchoReader::default();
    let outputs = plan.evaluate_outputs(&mut reader).unwrap();
    let id = format!("{GROUP}/providers/A.B/c/n");
    assert_eq!(outputs["byName"], json!({ "type": "String", "value": id }));
    assert_eq!(outputs["byId"]["value"], json!({ "self": id, "list": [1, 2] }));
    assert_eq!(outputs["byPart"], json!({ "type": "Int", "value": 2 }));
    assert_eq!(
        outputs["other"]["value"],
        json!(
            "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/g/providers/A.B/c/o"
        )
    );
    let full = &outputs["full"]["value"];
    assert_eq!(full["resourceId"], json!("A.B/c/n"));
    assert_eq!(full["identity"]["principalId"], json!("p"));
    assert_eq!(full["apiVersion"], json!("2021-01-01"));
    assert_eq!(full["resourceGroupName"], json!("examplegroup"));
    assert!(full.get("id").is_none() && full["isTemplateResource"] == true);
    assert_eq!(outputs["secret"], json!({ "type": "SecureString" }));
    assert!(!outputs.contains_key("skipped"));
    assert!(reader.reads.iter().any(|(_, version)| version == "2020-02-02"));
}

#[test]
fn condition_skips_a_resource_and_the_dependencies_on_it() {
    let plan = plan(resources(&[
        json!({ "name": "a", "dependsOn": ["b", "c"] }),
        json!({ "name": "b", "condition": false }),
        json!({ "name": "c", "condition": false }),
        json!({ "name": "c" }),
    ]))
    .unwrap();
    let deployed: Vec<_> = plan.resources().iter().map(|it| it.is_deployed).collect();
    assert_eq!(deployed, [true, false, false, true]);
    assert_eq!(plan.resources()[0].dependencies, [3]);
}

/// Checks the position and a part of the message of the `InvalidTemplate` of each template.
fn assert_invalid(cases: &[(Value, &str, &str)]) {
    for (elements, path, message) in cases {
        let error = plan(elements.clone()).unwrap_err();
        assert_eq!(error.code, "InvalidTemplate", "{error}");
        assert_eq!(error.path.to_string(), format!("properties.template{path}"), "{error}");
        assert!(error.message.contains(message), "{error}");
        assert_eq!(error.to_json()["additionalInfo"][0]["info"]["path"], error.path.to_string());
    }
}

#[test]
fn circular_dependencies_are_rejected() {
    assert_invalid(&[
        (
            resources(&[
                json!({ "name": "outside", "dependsOn": ["a"] }),
                json!({ "name": "b", "dependsOn": ["a"] }),
                json!({ "name": "a", "properties": { "x": "[reference('b').self]" } }),
            ]),
            ".resources[1]",
            &format!(
                "Deployment template validation failed: 'Circular dependency detected on resource: '{GROUP}/providers/A.B/c/b'. Please see https://aka.ms/arm-syntax-resources for usage details.'."
            ),
        ),
        (
            resources(&[json!({ "name": "self", "dependsOn": ["self"] })]),
            ".resources[0]",
            "Circular dependency detected on resource",
        ),
    ]);
}

#[test]
fn diamond_of_dependencies_is_no_cycle() {
    let plan = plan(resources(&[
        json!({ "name": "a", "dependsOn": ["b", "c"] }),
        json!({ "name": "c", "dependsOn": ["d"] }),
        json!({ "name": "d", "dependsOn": ["b"] }),
        json!({ "name": "b" }),
    ]))
    .unwrap();
    assert_eq!(stage_names(&plan), [["b"], ["d"], ["c"], ["a"]]);
}

#[test]
fn invalid_resources_are_rejected_with_their_position() {
    assert_invalid(&[
        (
            resources(&[json!({ "name": "a/b" })]),
            ".resources[0]",
            "The template resource 'a/b' for type 'A.B/c' at 'properties.template.resources[0]' has incorrect segment lengths.",
        ),
        (
            resources(&[
                json!({ "name": "a", "resources": [{ "type": "A.B/c/d", "apiVersion": "1", "name": "x" }] }),
            ]),
            ".resources[0].resources[0]",
            "has incorrect segment lengths",
        ),
        (
            resources(&[json!({ "name": "a" }), json!({ "name": "A" })]),
            ".resources[1]",
            "The resource 'A.B/c/A' at 'properties.template.resources[1]' is defined multiple times in a template.",
        ),
        (
            resources(&[json!({ "name": "a", "dependsOn": ["x"] })]),
            ".resources[0].dependsOn[0]",
            "The resource 'x' is not defined in the template.",
        ),
        (
            resources(&[json!({ "name": "a", "dependsOn": ["A.B/c/a", "A.B/c/x"] })]),
            ".resources[0].dependsOn[1]",
            "The resource 'A.B/c/x' is not defined in the template.",
        ),
        (
            resources(&[json!({ "name": "a", "dependsOn": ["a/x"] })]),
            ".resources[0].dependsOn[0]",
            "The resource identificator 'a/x' is malformed.",
        ),
        (
            resources(&[json!({ "name": "a", "dependsOn": [7] })]),
            ".resources[0].dependsOn[0]",
            "the name or the resource ID",
        ),
        (
            resources(&[
                json!({ "name": "a" }),
                json!({ "name": "a", "type": "A.B/d" }),
                json!({ "name": "b", "dependsOn": ["a"] }),
            ]),
            ".resources[2].dependsOn[0]",
            "The name 'a' is ambiguous",
        ),
    ]);
}

#[test]
fn invalid_expressions_are_rejected_with_their_position() {
    assert_invalid(&[
        (
            resources(&[json!({ "name": "a", "condition": "yes" })]),
            ".resources[0].condition",
            "The condition is not a boolean.",
        ),
        (
            resources(&[json!({ "name": "[concat('a', reference('b').x)]" })]),
            ".resources[0].name",
            "'reference' is not expected at this location",
        ),
        (
            resources(&[json!({ "name": "a", "location": "[reference('b').location]" })]),
            ".resources[0].location",
            "'reference' is not expected at this location",
        ),
        (
            resources(&[json!({ "name": "a", "properties": { "x": "[reference('none').y]" } })]),
            ".resources[0].properties.x",
            "The template reference 'none' is not valid: could not find template resource",
        ),
        (
            resources(&[
                json!({ "name": "a", "properties": { "x": "[reference(resourceId('A.B/c', 'o'))]" } }),
            ]),
            ".resources[0].properties.x",
            "requires an API version",
        ),
        (
            resources(&[
                json!({ "name": "a", "properties": { "x": "[reference('a', '1', 'Half')]" } }),
            ]),
            ".resources[0].properties.x",
            "not 'Half'",
        ),
        (
            resources(&[json!({ "name": "a", "properties": { "x": "[resourceGroup().none]" } })]),
            ".resources[0].properties.x",
            "The template resource 'a' at 'properties.template.resources[0].properties.x' is not valid: The language expression property 'none' doesn't exist",
        ),
        (
            json!({ "variables": { "v": { "w": "[reference('a')]" } } }),
            ".variables.v.w",
            "The template variable 'v' at 'properties.template.variables.v.w' is not valid: The template function 'reference' is not expected",
        ),
        (
            json!({ "outputs": { "o": { "type": "string", "value": "[variables('none')]" } } }),
            ".outputs.o.value",
            "The template output 'o'",
        ),
    ]);
}

#[test]
fn errors_during_the_deployment_name_resource_and_output() {
    let mut plan = plan(json!({
        "resources": [
            { "type": "A.B/c", "apiVersion": "1", "name": "a", "properties": { "x": "[reference('b').none]" } },
            { "type": "A.B/c", "apiVersion": "1", "name": "b", "properties": { "x": "[reference(resourceId('A.B/c', 'missing'), '1').y]" } },
        ],
        "outputs": {
            "first": { "type": "string", "value": "[reference('a').none]" },
            "second": { "type": "array", "value": "[reference('a')]" },
            "third": { "type": "string", "value": "[reference('a').self]" },
        },
    }))
    .unwrap();
    let mut reader = EchoReader::default();
    let error = plan.evaluate_body(0, &mut reader).unwrap_err();
    assert_eq!(error.code, "InvalidTemplate");
    assert_eq!(
        error.message,
        format!(
            "Unable to process template language expressions for resource '{GROUP}/providers/A.B/c/a' at 'properties.template.resources[0].properties.x'. 'The language expression property 'none' doesn't exist, available properties are 'list, self'.'"
        )
    );
    let error = plan.evaluate_body(1, &mut reader).unwrap_err();
    assert_eq!(error.code, "ResourceNotFound");
    let error = plan.evaluate_outputs(&mut reader).unwrap_err().to_json();
    assert_eq!(error["code"], "DeploymentOutputEvaluationFailed");
    assert!(error["message"].as_str().unwrap().contains("outputs: 'first,second'"), "{error}");
    assert_eq!(error["details"][0]["target"], "first");
    assert!(error["details"][1]["message"].as_str().unwrap().contains("Actual 'Object'"));
}

/// A template with constrained parameters.
fn constrained_parameters() -> Value {
    template(json!({
        "parameters": {
            "name": { "type": "string", "minLength": 3, "maxLength": 5 },
            "tier": { "type": "string", "defaultValue": "Free", "allowedValues": ["Free", "Paid"] },
            "zones": { "type": "array", "defaultValue": [], "allowedValues": ["1", "2"] },
            "count": { "type": "int", "defaultValue": 1, "minValue": 1, "maxValue": 3 },
            "secret": { "type": "secureString", "defaultValue": "aaa", "allowedValues": ["aaa", "bbb"] },
        },
    }))
}

#[test]
fn parameters_have_given_or_default_values() {
    let accepted = json!({
        "NAME": { "value": "abc" },
        "zones": { "value": ["2"] },
        "tier": { "value": null },
        "secret": { "value": "bbb" },
    });
    let plan = plan_with(&constrained_parameters(), &accepted).unwrap();
    assert_eq!(
        Value::Object(plan.parameters().clone()),
        json!({
            "name": { "type": "String", "value": "abc" },
            "tier": { "type": "String", "value": "Free" },
            "zones": { "type": "Array", "value": ["2"] },
            "count": { "type": "Int", "value": 1 },
            "secret": { "type": "SecureString" },
        })
    );
}

#[test]
fn values_of_parameters_are_checked() {
    let document = constrained_parameters();
    let cases = [
        (
            json!({}),
            "properties.template.parameters.name",
            "The value for the template parameter 'name' is not provided.",
        ),
        (
            json!({ "name": { "value": "ab" } }),
            "properties.parameters.name",
            "Length of the value should be greater than or equal to '3'.",
        ),
        (
            json!({ "name": { "value": "ééééé!" } }),
            "properties.parameters.name",
            "Length of the value should be less than or equal to '5'.",
        ),
        (
            json!({ "name": { "value": 7 } }),
            "properties.parameters.name",
            "Expected 'String, Uri'. Actual 'Integer'.",
        ),
        (
            json!({ "name": { "value": "abc" }, "count": { "value": 0 } }),
            "properties.parameters.count",
            "minimum value",
        ),
        (
            json!({ "name": { "value": "abc" }, "count": { "value": 4 } }),
            "properties.parameters.count",
            "maximum value",
        ),
        (
            json!({ "name": { "value": "abc" }, "count": { "value": 1.5 } }),
            "properties.parameters.count",
            "Actual 'Float'",
        ),
        (
            json!({ "name": { "value": "abc" }, "tier": { "value": "free" } }),
            "properties.parameters.tier",
            "The provided value 'free' for the template parameter 'tier' is not valid. The parameter value is not part of the allowed value(s): 'Free,Paid'.",
        ),
        (
            json!({ "name": { "value": "abc" }, "zones": { "value": ["1", "3"] } }),
            "properties.parameters.zones",
            "allowed value(s): '1,2'",
        ),
        (
            json!({ "name": { "value": "abc" }, "other": { "value": 1 }, "more": { "value": 1 } }),
            "properties.parameters",
            "The template parameters 'more, other' in the parameters file are not valid;",
        ),
        (
            json!({ "name": { "reference": { "keyVault": {}, "secretName": "s" } } }),
            "properties.parameters.name.reference",
            "the reference to a Key Vault secret",
        ),
        (
            json!({ "name": "abc" }),
            "properties.parameters.name",
            "an object with the member 'value'",
        ),
        (
            json!({ "name": { "values": 1 } }),
            "properties.parameters.name.values",
            "Could not find member 'values'",
        ),
    ];
    for (values, path, message) in cases {
        let error = plan_with(&document, &values).unwrap_err();
        assert_eq!(error.path.to_string(), path, "{error}");
        assert!(error.message.contains(message), "{error}");
    }
}

#[test]
fn values_of_secure_parameters_are_in_no_error_and_no_debug_text() {
    let document = template(json!({
        "parameters": {
            "secret": { "type": "secureString", "allowedValues": ["aaa"], "maxLength": 3 },
        },
        "variables": { "copied": "[parameters('secret')]" },
        "resources": [{
            "type": "A.B/c",
            "apiVersion": "1",
            "name": "n",
            "tags": { "t": "[parameters('secret')]" },
            "properties": { "p": "[variables('copied')]" },
        }],
        "outputs": { "o": { "type": "string", "value": "[variables('copied')]" } },
    }));
    for value in ["hunter2", "hu"] {
        let error = plan_with(&document, &json!({ "secret": { "value": value } })).unwrap_err();
        assert!(!format!("{error:?}").contains(value), "{error}");
    }
    let plan = plan_with(&document, &json!({ "secret": { "value": "aaa" } })).unwrap();
    assert!(!format!("{plan:?}").contains("aaa"), "{plan:?}");
}

#[test]
fn default_values_are_evaluated_and_checked() {
    let parameters = |more: Value| json!({ "parameters": { "a": { "type": "string", "defaultValue": "x" }, "b": more } });
    let plan = plan(parameters(
        json!({ "type": "string", "defaultValue": "[concat(parameters('a'), '-', resourceGroup().name)]" }),
    ));
    assert_eq!(plan.unwrap().parameters()["b"]["value"], "x-examplegroup");
    assert_invalid(&[
        (
            parameters(json!({ "type": "int", "defaultValue": "[parameters('a')]" })),
            ".parameters.b.defaultValue",
            "Expected 'Integer'. Actual 'String'.",
        ),
        (
            parameters(json!({ "type": "int", "defaultValue": "[parameters('b')]" })),
            ".parameters.b.defaultValue",
            "Circular reference detected on template parameter 'b'",
        ),
    ]);
}

#[test]
fn large_resources_are_rejected() {
    let mut plan = plan(json!({
        "variables": { "text": "x".repeat(600_000) },
        "resources": [{
            "type": "A.B/c",
            "apiVersion": "1",
            "name": "a",
            "properties": { "x": "[variables('text')]", "y": "[variables('text')]" },
        }],
    }))
    .unwrap();
    let error = plan.evaluate_body(0, &mut EchoReader::default()).unwrap_err();
    assert!(error.message.contains("Limit: '1048576' bytes"), "{error}");
}
