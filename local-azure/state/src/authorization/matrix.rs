//! Compares decisions with `matrix.txt`, which is written from Azure's documentation.

use std::collections::BTreeMap;

use lanyard_vocabulary::EntraTenantId;

use super::*;

const CALLER: Uuid = uuid::uuid!("00000000-0000-4000-8000-0000000000ca");
const ANOTHER: Uuid = uuid::uuid!("00000000-0000-4000-8000-0000000000cb");
const TENANT: &str = "11111111-0000-4000-8000-000000000001";

/// The state while the lines of the file are read.
struct Matrix {
    scopes: BTreeMap<String, String>,
    /// The groups of the caller.
    groups: BTreeMap<String, Uuid>,
    custom_roles: Vec<CustomRole>,
    /// The assignments of the current case.
    authorization: Authorization,
    case: String,
    rows: usize,
    wrong: Vec<String>,
}

impl Matrix {
    fn new() -> Self {
        Self {
            scopes: BTreeMap::new(),
            groups: BTreeMap::new(),
            custom_roles: Vec::new(),
            authorization: Authorization::default(),
            case: String::new(),
            rows: 0,
            wrong: Vec::new(),
        }
    }

    fn read_line(&mut self, line: &str) {
        let (keyword, rest) = line.split_once(' ').unwrap();
        match keyword {
            "scope" => {
                let (name, text) = rest.split_once(' ').unwrap();
                self.scopes.insert(name.to_owned(), text.to_owned());
            }
            "group" => {
                let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, rest.as_bytes());
                self.groups.insert(rest.to_owned(), id);
            }
            "custom" => self.add_custom_role(rest),
            "case" => self.begin_case(rest),
            "assign" => self.assign(rest),
            "allow" | "refuse" => self.check(line, rest, keyword == "allow"),
            _ => panic!("{line}"),
        }
    }

    fn begin_case(&mut self, title: &str) {
        title.clone_into(&mut self.case);
        self.authorization = Authorization::default();
        for role in &self.custom_roles {
            self.authorization.put_custom_role(role.clone()).unwrap();
        }
    }

    fn add_custom_role(&mut self, text: &str) {
        let (name, lists) = text.split_once(": ").unwrap();
        let mut block = PermissionBlock::default();
        let mut current = "";
        for word in lists.split(' ') {
            let list = match current {
                _ if ["actions", "not", "data", "notdata"].contains(&word) => {
                    current = word;
                    continue;
                }
                "actions" => &mut block.actions,
                "not" => &mut block.not_actions,
                "data" => &mut block.data_actions,
                _ => &mut block.not_data_actions,
            };
            list.push(ActionPattern::compile(word));
        }
        let id = RoleDefinitionId(Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()));
        self.custom_roles.push(CustomRole {
            definition: RoleDefinition { id, name: name.to_owned(), permissions: vec![block] },
            tenant: TENANT.parse().unwrap(),
            description: None,
            assignable_scopes: vec![AccessScope::root()],
            created_on: Timestamp::UNIX_EPOCH,
            created_by: ANOTHER,
            updated_on: Timestamp::UNIX_EPOCH,
            updated_by: ANOTHER,
        });
    }

    fn scope(&self, text: &str) -> AccessScope {
        let (name, below) = text.split_once('/').unwrap_or((text, ""));
        let expanded = match self.scopes.get(name) {
            Some(base) if below.is_empty() => base.clone(),
            Some(base) => format!("{base}/{below}"),
            None => text.to_owned(),
        };
        expanded.parse().unwrap()
    }

    fn role(&self, name: &str) -> RoleDefinitionId {
        let tenant: EntraTenantId = TENANT.parse().unwrap();
        self.authorization.role_with_name(Some(&tenant), name).expect(name)
    }

    fn assign(&mut self, text: &str) {
        let (text, condition) = match text.split_once(" if ") {
            Some((text, condition)) => (text, Some(Condition::parse("2.0", condition).unwrap())),
            None => (text, None),
        };
        let (text, principal_id) = match text.split_once(" to ") {
            Some((text, "another")) => (text, ANOTHER),
            Some((text, group)) => (text, self.groups[group]),
            None => (text, CALLER),
        };
        let (role, scope) = text.split_once(" @ ").unwrap();
        let name = Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes());
        let (role, scope) = (self.role(role), self.scope(scope));
        let assignment =
            RoleAssignment::new(name, scope, role, principal_id, Timestamp::UNIX_EPOCH);
        let created = self.authorization.assign(RoleAssignment { condition, ..assignment });
        assert_eq!(created, Ok(AssignOutcome::Created), "{text}");
    }

    fn check(&mut self, line: &str, row: &str, expected: bool) {
        let (plane, row) = match row.strip_prefix("data ") {
            Some(row) => (ActionPlane::Data, row),
            None => (ActionPlane::Control, row),
        };
        let (row, named_role) = match row.split_once(" of ") {
            Some((row, role)) => (row, Some(self.role(role))),
            None => (row, None),
        };
        let (action, scope) = row.split_once(" @ ").unwrap();
        let source = if action.to_ascii_lowercase().ends_with("/delete") {
            AttributeSource::Resource
        } else {
            AttributeSource::Request
        };
        let role_assignment = named_role.map(|role| AssignmentAttributes {
            source,
            role,
            principal_id: ANOTHER,
            principal_type: "ServicePrincipal",
        });
        let mut principal_ids = vec![CALLER];
        principal_ids.extend(self.groups.values());
        let scope = self.scope(scope);
        let is_below_group = scope.subscription_id().is_some_and(|id| id == "0000-sub");
        let management_groups: Vec<_> =
            is_below_group.then(|| self.scope("MG")).into_iter().collect();
        let request = AccessRequest {
            principal_ids: &principal_ids,
            plane,
            action,
            scope: &scope,
            management_groups: &management_groups.into(),
            role_assignment,
            now: Timestamp::UNIX_EPOCH,
        };
        let explained = self.authorization.explain_decision(request);
        let is_wrong = explained.granted != expected;
        assert_eq!(self.authorization.is_granted(request), explained.granted, "{line}");
        if is_wrong {
            self.wrong.push(format!("{}: {line}: {}", self.case, explained.reason));
        }
        self.rows += 1;
    }
}

#[test]
fn decisions_are_those_that_azure_documents() {
    let mut matrix = Matrix::new();
    for line in include_str!("matrix.txt").lines() {
        if !line.is_empty() && !line.starts_with('#') {
            matrix.read_line(line);
        }
    }
    println!("{} decisions, {} of them wrong", matrix.rows, matrix.wrong.len());
    assert!(matrix.wrong.is_empty(), "{}", matrix.wrong.join("\n"));
    assert!(matrix.rows >= 300, "{}", matrix.rows);
}
