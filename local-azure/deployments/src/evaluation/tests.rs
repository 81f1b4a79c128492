use proptest::prelude::*;
use serde_json::json;

use super::super::deployment_scope::DeploymentGroup;
use super::super::expression::TemplateText;
use super::super::expression::tests::any_expression;
use super::*;

const SUBSCRIPTION: &str = "11111111-1111-1111-1111-111111111111";

/// A deployment to the resource group `examplegroup`.
pub(crate) fn group_scope() -> DeploymentScope {
    let id = format!("/subscriptions/{SUBSCRIPTION}/resourceGroups/examplegroup");
    DeploymentScope {
        subscription_id: SUBSCRIPTION.to_owned(),
        tenant_id: "22222222-2222-2222-2222-222222222222".to_owned(),
        subscription_name: "Example".to_owned(),
        group: Some(DeploymentGroup {
            name: "examplegroup".to_owned(),
            resource: json!({
                "id": id,
                "name": "examplegroup",
                "type": "Microsoft.Resources/resourceGroups",
                "location": "southcentralus",
                "tags": { "Team": "identity" },
                "properties": { "provisioningState": "Succeeded" },
            }),
        }),
    }
}

pub(crate) fn subscription_scope() -> DeploymentScope {
    DeploymentScope { group: None, ..group_scope() }
}

fn path() -> JsonPath {
    JsonPath::template().member("x")
}

fn evaluator(scope: DeploymentScope) -> TemplateEvaluator {
    let mut evaluator = TemplateEvaluator::new(scope);
    let parameters = json!({
        "prefix": "prefix",
        "firstArray": ["1-1", "1-2", "1-3"],
        "secondArray": ["2-1", "2-2", "2-3"],
        "settings": { "Sku": { "name": "Standard" }, "ports": [80, 443], "on": true },
        "count": 3,
    });
    for (name, value) in parameters.as_object().unwrap() {
        evaluator.add_parameter(name, &path(), value.clone());
    }
    for (name, value) in [
        ("stringVar", json!("myVariable")),
        ("concatToVar", json!("[concat(variables('stringVar'), '-addtovar') ]")),
        ("concatToParam", json!("[concat(parameters('prefix'), '-addtoparam')]")),
        ("[literal", json!({ "[concat('a', 'b')]": "[[kept]", "list": ["[parameters('count')]"] })),
        ("loop", json!("[variables('back')]")),
        ("back", json!(["[variables('loop')]"])),
    ] {
        let value = TemplateValue::parse(&value, &path()).unwrap();
        evaluator.add_variable(name, &path().member(name), value);
    }
    evaluator
}

fn evaluate_in(scope: DeploymentScope, text: &str) -> EvaluationResult<Value> {
    let value = TemplateValue::parse(&json!(text), &path()).unwrap();
    evaluator(scope).evaluate(&value, &path(), &mut EvaluationPhase::Declaration)
}

fn error_message(result: EvaluationResult<Value>) -> String {
    match result.unwrap_err() {
        EvaluationError::Expression { message, .. } => message,
        EvaluationError::Template(error) => error.message,
    }
}

#[test]
fn documented_examples_have_the_documented_values() {
    let group = format!("/subscriptions/{SUBSCRIPTION}/resourceGroups/examplegroup");
    let cases = [
        ("[concat(parameters('prefix'), '-5yj4yjf5mbg72')]", json!("prefix-5yj4yjf5mbg72")),
        (
            "[concat(parameters('firstArray'), parameters('secondArray'))]",
            json!(["1-1", "1-2", "1-3", "2-1", "2-2", "2-3"]),
        ),
        (
            "[format('{0}, {1}. Formatted number: {2:N0}', 'Hello', 'User', 8175133)]",
            json!("Hello, User. Formatted number: 8,175,133"),
        ),
        (
            "[resourceId('Microsoft.Storage/storageAccounts','examplestorage')]",
            json!(format!("{group}/providers/Microsoft.Storage/storageAccounts/examplestorage")),
        ),
        (
            "[resourceId('otherResourceGroup', 'Microsoft.Storage/storageAccounts','examplestorage')]",
            json!(format!(
                "/subscriptions/{SUBSCRIPTION}/resourceGroups/otherResourceGroup/providers/Microsoft.Storage/storageAccounts/examplestorage"
            )),
        ),
        (
            "[resourceId('33333333-3333-3333-3333-333333333333', 'otherResourceGroup', 'Microsoft.Storage/storageAccounts','examplestorage')]",
            json!(
                "/subscriptions/33333333-3333-3333-3333-333333333333/resourceGroups/otherResourceGroup/providers/Microsoft.Storage/storageAccounts/examplestorage"
            ),
        ),
        (
            "[resourceId('Microsoft.SQL/servers/databases', 'serverName', 'databaseName')]",
            json!(format!(
                "{group}/providers/Microsoft.SQL/servers/serverName/databases/databaseName"
            )),
        ),
        (
            "[resourceId('Microsoft.Network/networkSecurityGroups/', 'nsg')]",
            json!(format!("{group}/providers/Microsoft.Network/networkSecurityGroups/nsg")),
        ),
        ("[resourceGroup().location]", json!("southcentralus")),
        ("[resourceGroup().TAGS.team]", json!("identity")),
        ("[subscription().id]", json!(format!("/subscriptions/{SUBSCRIPTION}"))),
        ("[subscription().subscriptionId]", json!(SUBSCRIPTION)),
        ("[subscription().displayName]", json!("Example")),
        ("[VARIABLES('concattovar')]", json!("myVariable-addtovar")),
        ("[variables('concatToParam')]", json!("prefix-addtoparam")),
        ("[[test value]", json!("[test value]")),
    ];
    for (text, expected) in cases {
        assert_eq!(evaluate_in(group_scope(), text), Ok(expected), "{text}");
    }
}

#[test]
fn members_are_accessed_by_name_and_index() {
    let cases = [
        ("[parameters('settings').sku.NAME]", json!("Standard")),
        ("[parameters('settings')['ports'][1]]", json!(443)),
        ("[parameters('settings')[concat('po', 'rts')]]", json!([80, 443])),
        ("[variables('[literal').ab]", json!("[kept]")),
        ("[variables('[literal')['list'][0]]", json!(3)),
        ("[concat('a', parameters('count'), parameters('settings').on)]", json!("a3True")),
    ];
    for (text, expected) in cases {
        assert_eq!(evaluate_in(group_scope(), text), Ok(expected), "{text}");
    }
}

#[test]
fn resource_ids_of_a_subscription_have_no_group() {
    let id = |text: &str| evaluate_in(subscription_scope(), text).unwrap();
    assert_eq!(
        id("[resourceId('Microsoft.Authorization/roleDefinitions', 'r')]"),
        json!(format!(
            "/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Authorization/roleDefinitions/r"
        ))
    );
    assert_eq!(
        id("[resourceId('Microsoft.Resources/resourceGroups', 'g')]"),
        json!(format!("/subscriptions/{SUBSCRIPTION}/resourceGroups/g"))
    );
    assert_eq!(
        id("[resourceId('33333333-3333-3333-3333-333333333333', 'A.B/c', 'n')]"),
        json!("/subscriptions/33333333-3333-3333-3333-333333333333/providers/A.B/c/n")
    );
    assert_eq!(
        id("[resourceId('group', 'A.B/c', 'n')]"),
        json!(format!("/subscriptions/{SUBSCRIPTION}/resourceGroups/group/providers/A.B/c/n"))
    );
    let error = error_message(evaluate_in(subscription_scope(), "[resourceGroup().id]"));
    assert!(error.contains("'resourceGroup' is not expected at this location"), "{error}");
}

#[test]
fn evaluation_errors_have_the_messages_of_azure() {
    let cases = [
        (
            "[resourceGroup().locations]",
            "The language expression property 'locations' doesn't exist, available properties are 'id, location, name, properties, tags, type'.",
        ),
        ("[parameters('firstArray')[3]]", "array index '3' is out of bounds"),
        ("[parameters('firstArray')[-1]]", "array index '-1' is out of bounds"),
        (
            "[parameters('settings')[0]]",
            "The language expression property '0' can't be evaluated, property name must be a string.",
        ),
        ("[parameters('prefix').length]", "property 'length' can't be evaluated"),
        ("[parameters('firstArray').name]", "property 'name' can't be evaluated"),
        ("[parameters('firstArray')[parameters('settings')]]", "An index must be"),
        ("[parameters('none')]", "The template parameter 'none' is not found."),
        ("[variables('none')]", "The template variable 'none' is not found."),
        ("[variables(7)]", "all function arguments must be string literals"),
        ("[variables('loop')]", "Circular reference detected on template variable 'loop'."),
        ("[reference('x')]", "'reference' is not expected at this location"),
        (
            "[concat('a', parameters('firstArray'))]",
            "either all or none of the parameters must be an array",
        ),
        ("[concat(parameters('settings'))]", "must be strings, integers or arrays"),
        ("[format(1, 2)]", "the first parameter must be a string"),
        ("[format('{1}', 2)]", "less than the size of the argument list"),
        (
            "[resourceId('Microsoft.Compute/virtualMachines/extensions', 'vm')]",
            "the type 'Microsoft.Compute/virtualMachines/extensions' requires '2' resource name argument(s).",
        ),
        (
            "[resourceId('/Microsoft.Network/virtualNetworks/subnets', 'a', 'b')]",
            "the type '/Microsoft.Network/virtualNetworks/subnets' requires '3' resource name argument(s).",
        ),
        (
            "[resourceId('Microsoft.ServiceBus/namespaces', 'a/b')]",
            "function requires exactly one multi-segmented argument",
        ),
        ("[resourceId('a', 'b')]", "function requires exactly one multi-segmented argument"),
        ("[resourceId('sub', 'group', 'A.B/c', 'n')]", "'sub' is malformed"),
        ("[resourceId('a', 'b', 'c', 'A.B/c', 'n')]", "too many arguments"),
        ("[resourceId('A.B/c', 7)]", "all function arguments must be string literals"),
        ("[subscriptionResourceId('group', 'A.B/c', 'n')]", "'group' is malformed"),
        ("[subscriptionResourceId('a', 'b', 'A.B/c', 'n')]", "too many arguments"),
        ("[subscriptionResourceId('A.B/c', 'n', 'm')]", "requires '1' resource name argument(s)"),
        ("[guid('a', 7)]", "all function arguments must be string literals"),
    ];
    for (text, expected) in cases {
        let error = error_message(evaluate_in(group_scope(), text));
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn default_values_cannot_use_variables() {
    let mut evaluator = evaluator(group_scope());
    let default = TemplateValue::parse(&json!("[variables('stringVar')]"), &path()).unwrap();
    evaluator.add_parameter_default("late", &path(), default);
    let error = error_message(evaluator.parameter("late", &path()).cloned());
    assert!(error.contains("'variables' is not expected at this location"), "{error}");
}

#[test]
fn errors_name_the_position_of_the_expression() {
    let value = json!({ "list": ["a", { "x y": "[variables('none')]" }] });
    let value = TemplateValue::parse(&value, &path()).unwrap();
    let error = evaluator(group_scope())
        .evaluate(&value, &path(), &mut EvaluationPhase::Declaration)
        .unwrap_err();
    let EvaluationError::Expression { path, .. } = error else { panic!("{error:?}") };
    assert_eq!(path.to_string(), "properties.template.x.list[1]['x y']");
}

#[test]
fn variables_that_multiply_are_limited() {
    let mut evaluator = TemplateEvaluator::new(group_scope());
    evaluator.add_parameter("start", &path(), json!("x".repeat(1_000)));
    evaluator.add_variable(
        "v0",
        &path(),
        TemplateValue::parse(&json!("[parameters('start')]"), &path()).unwrap(),
    );
    for level in 1..100 {
        let half = format!("[variables('v{}')]", level - 1);
        let doubled = TemplateValue::parse(&json!({ "a": half, "b": half }), &path()).unwrap();
        evaluator.add_variable(&format!("v{level}"), &path(), doubled);
    }
    let error = error_message(evaluator.variable("v99", &path()).cloned());
    assert!(error.contains("exceeds the limit of 4194304 bytes"), "{error}");
}

#[test]
fn deep_chains_of_variables_are_limited() {
    let chain = |length: usize, link: &dyn Fn(usize) -> Value| {
        let mut evaluator = TemplateEvaluator::new(group_scope());
        for level in 0..length {
            let value = if level == 0 { json!("end") } else { link(level - 1) };
            let value = TemplateValue::parse(&value, &path()).unwrap();
            evaluator.add_variable(&format!("v{level}"), &path(), value);
        }
        // Each variable is evaluated from the first on, so that no evaluation is deep.
        let names = (0..length).map(|level| format!("v{level}"));
        let shallow = names.map(|name| evaluator.variable(&name, &path()).cloned()).collect();
        let shallow: EvaluationResult<Vec<Value>> = shallow;
        shallow.map(|mut values| values.pop().unwrap())
    };
    let alias = |level: usize| json!(format!("[variables('v{level}')]"));
    assert_eq!(chain(512, &alias), Ok(json!("end")));
    let nested = |level: usize| json!([format!("[variables('v{level}')]")]);
    let error = error_message(chain(512, &nested).map(|_| Value::Null));
    assert!(error.contains("more than 200 nested values"), "{error}");

    let mut evaluator = TemplateEvaluator::new(group_scope());
    for level in 0..512 {
        let call = format!("{}variables('v{}'){}", "concat(".repeat(90), level + 1, ")".repeat(90));
        let value = TemplateValue::parse(&json!(format!("[{call}]")), &path()).unwrap();
        evaluator.add_variable(&format!("v{level}"), &path(), value);
    }
    let error = error_message(evaluator.variable("v0", &path()).cloned());
    assert!(error.contains("more than 200 nested values"), "{error}");
}

proptest! {
    #[test]
    fn evaluation_is_deterministic_and_never_panics(expression in any_expression()) {
        let value = TemplateValue::Expression(expression);
        let evaluate = || {
            evaluator(group_scope()).evaluate(&value, &path(), &mut EvaluationPhase::Declaration)
        };
        prop_assert_eq!(evaluate(), evaluate());
    }

    #[test]
    fn literal_strings_evaluate_to_themselves(text in "[^\\[]\\PC{0,20}|") {
        let parsed = TemplateText::parse(&text);
        prop_assert_eq!(parsed, Ok(TemplateText::Literal(text)));
    }

    #[test]
    fn evaluation_ahead_agrees_with_evaluation(expression in any_expression()) {
        prop_assume!(!expression.calls(TemplateFunction::Reference));
        let value = TemplateValue::Array(vec![TemplateValue::Expression(expression)]);
        let whole =
            evaluator(group_scope()).evaluate(&value, &path(), &mut EvaluationPhase::Declaration);
        let mut ahead = evaluator(group_scope());
        let staged = ahead
            .evaluate_ahead(&value, &path())
            .and_then(|value| ahead.evaluate(&value, &path(), &mut EvaluationPhase::Declaration));
        prop_assert_eq!(whole, staged);
    }
}
