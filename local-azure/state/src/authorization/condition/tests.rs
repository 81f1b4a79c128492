use proptest::prelude::*;

use super::*;
use crate::authorization::built_in_roles::BuiltInRoles;

const SECRETS_USER: &str = "4633458b-17de-408a-b874-0445c86b69e6";
const OWNER: &str = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635";
const PRINCIPAL: &str = "28c35fea-2099-4cf5-8ad9-473547bc9423";
const WRITE: &str = "microsoft.authorization/roleassignments/write";
const DELETE: &str = "microsoft.authorization/roleassignments/delete";

fn scope(text: &str) -> AccessScope {
    text.parse().unwrap()
}

/// Whether a condition allows writing or deleting an assignment of `role` to a service principal.
fn allows(condition: &Condition, action: &str, role: &str) -> bool {
    let source =
        if action == DELETE { AttributeSource::Resource } else { AttributeSource::Request };
    let attributes = AssignmentAttributes {
        source,
        role: RoleDefinitionId(role.parse().unwrap()),
        principal_id: PRINCIPAL.parse().unwrap(),
        principal_type: "ServicePrincipal",
    };
    let at = scope("/subscriptions/s");
    let role_assignment = Some(attributes);
    condition.is_met(&ConditionContext { action, scope: &at, role_assignment })
}

fn parse(text: &str) -> Condition {
    Condition::parse("2.0", text).unwrap()
}

#[test]
fn delegation_condition_limits_the_roles_that_can_be_assigned() {
    let condition = parse(&format!(
        "((!(ActionMatches{{'Microsoft.Authorization/roleAssignments/write'}})) OR \
         (@Request[Microsoft.Authorization/roleAssignments:RoleDefinitionId] \
         ForAnyOfAnyValues:GuidEquals{{{SECRETS_USER}, 21090545-7ca7-4776-b22c-e363652d74d2}})) AND \
         ((!(ActionMatches{{'Microsoft.Authorization/roleAssignments/delete'}})) OR \
         (@Resource[Microsoft.Authorization/roleAssignments:RoleDefinitionId] \
         ForAnyOfAnyValues:GuidEquals{{{}}}))",
        SECRETS_USER.replace('-', "")
    ));
    for action in [WRITE, DELETE] {
        assert!(allows(&condition, action, SECRETS_USER), "{action}");
        assert!(!allows(&condition, action, OWNER), "{action}");
    }
    assert!(allows(&condition, "microsoft.keyvault/vaults/read", OWNER));
}

#[test]
fn condition_without_its_attribute_is_not_met_even_if_negated() {
    let at = scope("/subscriptions/s");
    let context = ConditionContext { action: WRITE, scope: &at, role_assignment: None };
    let attribute = "@Request[Microsoft.Authorization/roleAssignments:RoleDefinitionId]";
    for (text, expected) in [
        (format!("{attribute} GuidEquals {OWNER}"), false),
        (format!("{attribute} GuidNotEquals {OWNER}"), false),
        (format!("NOT ({attribute} GuidEquals {OWNER})"), false),
        (format!("NOT Exists {attribute}"), true),
        (format!("ActionMatches{{'*'}} OR {attribute} GuidEquals {OWNER}"), true),
        (format!("ActionMatches{{'A.B/*'}} AND {attribute} GuidEquals {OWNER}"), false),
    ] {
        assert_eq!(parse(&text).is_met(&context), expected, "{text}");
    }
}

#[test]
fn operators_compare_as_documented() {
    let kind = "@Request[Microsoft.Authorization/roleAssignments:PrincipalType]";
    let id = "@Request[Microsoft.Authorization/roleAssignments:PrincipalId]";
    for (text, expected) in [
        (format!("{kind} StringEquals 'ServicePrincipal'"), true),
        (format!("{kind} StringEquals 'serviceprincipal'"), false),
        (format!("{kind} StringEqualsIgnoreCase 'serviceprincipal'"), true),
        (format!("{kind} StringNotEquals 'User'"), true),
        (format!("{kind} StringNotEqualsIgnoreCase 'SERVICEPRINCIPAL'"), false),
        (format!("{kind} StringStartsWith 'Service'"), true),
        (format!("{kind} StringNotStartsWith 'Service'"), false),
        (format!("{kind} StringLike 'Service*'"), true),
        (format!("{kind} StringLike 'S?rv*pal'"), true),
        (format!("{kind} StringLike 'service*'"), false),
        (format!("{kind} StringLike 'Service\\*'"), false),
        (format!("{kind} StringNotLike '*Group'"), true),
        (
            format!(
                "{kind} ForAnyOfAnyValues:StringEqualsIgnoreCase {{'User', 'ServicePrincipal'}}"
            ),
            true,
        ),
        (format!("{kind} ForAllOfAllValues:StringNotEquals {{'User', 'Group'}}"), true),
        (format!("{kind} ForAllOfAllValues:StringNotEquals {{'User', 'ServicePrincipal'}}"), false),
        (format!("{id} GuidEquals {PRINCIPAL}"), true),
        (format!("{id} GuidEquals '{}'", PRINCIPAL.to_uppercase()), true),
        (format!("{id} GuidNotEquals {PRINCIPAL}"), false),
        ("{'red', 'blue'} ForAnyOfAnyValues:StringEquals {'blue', 'green'}".to_owned(), true),
        ("{'red', 'blue'} ForAnyOfAnyValues:StringEquals {'orange', 'green'}".to_owned(), false),
        (
            "{'red', 'blue'} ForAllOfAnyValues:StringEquals {'orange', 'red', 'blue'}".to_owned(),
            true,
        ),
        ("{'red', 'blue'} ForAllOfAnyValues:StringEquals {'red', 'green'}".to_owned(), false),
        ("{'red', 'blue'} ForAnyOfAllValues:StringEquals {'red', 'red'}".to_owned(), true),
    ] {
        assert_eq!(allows(&parse(&text), WRITE, OWNER), expected, "{text}");
    }
}

#[test]
fn storage_attributes_are_taken_from_the_scope() {
    let condition = parse(
        "(!(ActionMatches{'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read'})) \
         OR (@Resource[Microsoft.Storage/storageAccounts/blobServices/containers:name] StringEquals 'one')",
    );
    let read = "microsoft.storage/storageaccounts/blobservices/containers/blobs/read";
    for (container, action, expected) in [
        ("one", read, true),
        ("two", read, false),
        ("two", "microsoft.storage/storageaccounts/blobservices/containers/blobs/write", true),
    ] {
        let at = scope(&format!(
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a/blobServices/default/containers/{container}"
        ));
        let context = ConditionContext { action, scope: &at, role_assignment: None };
        assert_eq!(condition.is_met(&context), expected, "{container} {action}");
    }
}

#[test]
fn invalid_and_unevaluated_conditions_are_distinguished() {
    let syntax = [
        "",
        "(",
        "()",
        "a",
        "'a' StringEquals",
        "'a' StringEquals 'b' 'c'",
        "'a' StringEquals 'b",
        "'a' StringEquals {'b', 'c'}",
        "{} ForAnyOfAnyValues:StringEquals {'b'}",
        "'a' StringEquals 'b' AND 'a' StringEquals 'b' OR 'a' StringEquals 'b'",
        "ActionMatches'a'",
        "ActionMatches{a}",
        "@Request StringEquals 'a'",
        "Exists 'a'",
        "'a' & 'b'",
    ];
    for text in syntax {
        let found = Condition::parse("2.0", text).unwrap_err();
        assert!(matches!(found, ConditionError::Syntax { .. }), "{text}: {found}");
    }
    let not_evaluated = [
        "@Resource[HasObotoken] BoolEquals true",
        "@Environment[UtcNow] DateTimeGreaterThan '2022-05-01T13:00:00.0Z'",
        "@Principal[Microsoft.Directory/CustomSecurityAttributes/Id:Engineering_Project] StringEquals 'a'",
        "@Request[Microsoft.Storage/storageAccounts/blobServices/containers:name] StringEquals 'a'",
        "SubOperationMatches{'Blob.List'}",
        "'1' NumericLessThan '2'",
        "'1' ForEveryValue:StringEquals '2'",
    ];
    for text in not_evaluated {
        let found = Condition::parse("2.0", text).unwrap_err();
        assert!(matches!(found, ConditionError::NotEvaluated(_)), "{text}: {found}");
    }
    assert_eq!(
        Condition::parse("1.0", "ActionMatches{'*'}").unwrap_err(),
        ConditionError::Version("1.0".to_owned())
    );
}

#[test]
fn length_and_depth_of_conditions_are_limited() {
    let nested = |depth: usize| format!("{}ActionMatches{{'*'}}", "!".repeat(depth));
    assert!(Condition::parse("2.0", &nested(64)).is_ok());
    let problem = Condition::parse("2.0", &nested(65)).unwrap_err();
    assert!(matches!(problem, ConditionError::Syntax { .. }), "{problem}");
    let with_length = |length: usize| format!("{:length$}", "ActionMatches{'*'}");
    assert!(Condition::parse("2.0", &with_length(8192)).is_ok());
    let problem = Condition::parse("2.0", &with_length(8193)).unwrap_err();
    assert_eq!(problem, ConditionError::TooLong { length: 8193, most: 8192 });
}

/// The condition that stopped the local Azure: a matcher that tries each text for each star never ends.
#[test]
fn pattern_with_many_stars_is_evaluated() {
    let condition = parse(&format!("ActionMatches{{'{}b'}}", "*a".repeat(4000)));
    let at = scope("/subscriptions/s");
    let action = "a".repeat(8000);
    let context = ConditionContext { action: &action, scope: &at, role_assignment: None };
    assert!(!condition.is_met(&context));
}

#[test]
fn conditions_of_built_in_roles_are_evaluated_or_never_met() {
    let mut never = Vec::new();
    for role in BuiltInRoles::embedded().iter() {
        for condition in role.definition().permissions.iter().filter_map(|p| p.condition.as_ref()) {
            if condition.expression.is_none() {
                never.push(role.name);
                assert!(!allows(condition, WRITE, OWNER), "{}", role.name);
            }
        }
    }
    // These need an on-behalf-of token or the protection level of a table.
    assert_eq!(
        never,
        [
            "Azure Resilience Management Drills Administrator",
            "Azure Resilience Management Drills Assets Administrator",
            "Azure Resilience Management Drills Target Resource Administrator",
            "Azure Resilience Management Goals Administrator",
            "Azure Resilience Management Recovery Administrator",
            "Oracle Database DbSystems Administrator",
            "Privileged Monitoring Data Reader",
        ]
    );
}

#[test]
fn condition_survives_serialization() {
    let condition = parse("ActionMatches{'A.B/*'}");
    let text = serde_json::to_string(&condition).unwrap();
    let read: Condition = serde_json::from_str(&text).unwrap();
    assert_eq!(read, condition);
    assert!(serde_json::from_str::<Condition>(r#"{"version":"2.0","expression":"("}"#).is_err());
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "[-@!&|(){},':a-zA-Z0-9 \\[\\]\\\\é]{0,60}") {
        drop(Condition::parse("2.0", &text));
    }

    #[test]
    fn like_pattern_of_the_text_itself_matches(text in "[a-c*?]{0,12}", other in "[a-c]{0,12}") {
        let characters: Vec<_> = text.chars().collect();
        prop_assert!(is_like(&characters, &parse_like_pattern(&text)));
        let escaped = text.replace('*', "\\*").replace('?', "\\?");
        prop_assert!(is_like(&characters, &parse_like_pattern(&escaped)));
        let others: Vec<_> = other.chars().collect();
        prop_assert_eq!(is_like(&others, &parse_like_pattern(&escaped)), text == other);
    }
}
