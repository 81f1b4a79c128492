use proptest::prelude::*;

use super::*;

fn call(function: TemplateFunction, arguments: Vec<TemplateExpression>) -> TemplateExpression {
    value(TemplateOperand::Call(FunctionCall { function, arguments }))
}

fn value(operand: TemplateOperand) -> TemplateExpression {
    TemplateExpression { operand, accesses: Vec::new() }
}

fn text(text: &str) -> TemplateExpression {
    value(TemplateOperand::Text(text.to_owned()))
}

fn with(mut expression: TemplateExpression, accesses: Vec<MemberAccess>) -> TemplateExpression {
    expression.accesses = accesses;
    expression
}

fn property(name: &str) -> MemberAccess {
    MemberAccess::Property(name.to_owned())
}

fn index(expression: TemplateExpression) -> MemberAccess {
    MemberAccess::Index(expression)
}

#[test]
fn brackets_decide_between_literals_and_expressions() {
    // The examples of "Escape characters", and their edges.
    let literals = [
        ("[[test value]", "[test value]"),
        ("[test] value", "[test] value"),
        ("[[test] value", "[[test] value"),
        ("[[]", "[]"),
        ("[", "["),
        ("]", "]"),
        ("", ""),
        (" [x()]", " [x()]"),
        ("{\"Dept\":\"Finance\"}", "{\"Dept\":\"Finance\"}"),
    ];
    for (written, expected) in literals {
        let parsed = TemplateText::parse(written).unwrap();
        assert_eq!(parsed, TemplateText::Literal(expected.to_owned()), "{written}");
    }
    assert!(matches!(TemplateText::parse("['x']"), Ok(TemplateText::Expression(_))));
}

#[test]
fn expressions_are_parsed_into_calls_and_accesses() {
    use TemplateFunction::{Concat, Parameters, Reference, ResourceGroup, Subscription, Variables};
    let cases = [
        ("['it''s']", text("it's")),
        ("['']", text("")),
        ("['''']", text("'")),
        ("[ -12 ]", value(TemplateOperand::Integer(-12))),
        (
            "[resourceGroup().location]",
            with(call(ResourceGroup, vec![]), vec![property("location")]),
        ),
        (
            "[SUBSCRIPTION( )['tenantId']]",
            with(call(Subscription, vec![]), vec![index(text("tenantId"))]),
        ),
        (
            "[concat(parameters('a'), 'b',7)]",
            call(
                Concat,
                vec![
                    call(Parameters, vec![text("a")]),
                    text("b"),
                    value(TemplateOperand::Integer(7)),
                ],
            ),
        ),
        (
            "[variables('list')[0].name[variables('key')]]",
            with(
                call(Variables, vec![text("list")]),
                vec![
                    index(value(TemplateOperand::Integer(0))),
                    property("name"),
                    index(call(Variables, vec![text("key")])),
                ],
            ),
        ),
        (
            "[reference('a', '2024-01-01', 'Full').identity]",
            with(
                call(Reference, vec![text("a"), text("2024-01-01"), text("Full")]),
                vec![property("identity")],
            ),
        ),
    ];
    for (written, expected) in cases {
        let parsed = TemplateText::parse(written);
        assert_eq!(parsed, Ok(TemplateText::Expression(expected)), "{written}");
    }
}

#[test]
fn syntax_errors_name_the_expected_and_the_actual_token() {
    let cases = [
        (
            "[concat('ai-', resourceGroup().id]",
            "Unable to parse language expression 'concat('ai-', resourceGroup().id': expected token 'RightParenthesis' and actual 'EndOfData'.",
        ),
        (
            "[]",
            "Unable to parse language expression '': expected token 'Identifier' and actual 'EndOfData'.",
        ),
        ("[concat('a'))]", "expected token 'EndOfData' and actual 'RightParenthesis'"),
        ("[concat('a',)]", "expected token 'Identifier' and actual 'RightParenthesis'"),
        ("[location]", "expected token 'LeftParenthesis' and actual 'EndOfData'"),
        ("[resourceGroup().]", "expected token 'Identifier' and actual 'EndOfData'"),
        ("[resourceGroup()[0]", "'resourceGroup()[0'"),
        ("[1.5]", "expected token 'Identifier' and actual 'Integer'"),
        ("[-]", "'-' is no integer"),
        ("[99999999999999999999]", "is no integer"),
        ("['open]", "the string literal has no closing quote"),
        ("[resourceGroup().?tags]", "unexpected character '?'"),
        ("[concat(\"a\")]", "unexpected character '\"'"),
        ("['a' 'b']", "expected token 'EndOfData' and actual 'StringLiteral'"),
    ];
    for (written, expected) in cases {
        let error = TemplateText::parse(written).unwrap_err().to_string();
        assert!(error.contains(expected), "{written}: {error}");
    }
}

#[test]
fn functions_that_are_not_implemented_are_named_with_those_that_are() {
    for (written, name) in [
        ("[concat('a', uniqueString(resourceGroup().id))]", "'uniqueString'"),
        ("[tenantResourceId('a/b', 'c')]", "'tenantResourceId'"),
        ("[contoso.uniqueName('a')]", "'contoso.uniqueName'"),
    ] {
        let error = TemplateText::parse(written).unwrap_err().to_string();
        assert!(error.contains(name), "{written}: {error}");
        let list = "concat, format, guid, parameters, reference, resourceGroup, resourceId, subscription, \
                    subscriptionResourceId, variables";
        assert!(error.contains(list), "{error}");
    }
}

#[test]
fn wrong_numbers_of_arguments_are_rejected() {
    for (written, expected) in [
        (
            "[parameters()]",
            "'parameters': function requires '1' argument(s) while '0' were provided",
        ),
        ("[variables('a', 'b')]", "'variables': function requires '1' argument(s) while '2'"),
        ("[concat()]", "'concat': function requires at least '1' argument(s) while '0'"),
        ("[format('a')]", "'format': function requires at least '2' argument(s) while '1'"),
        ("[resourceId('a/b')]", "'resourceId': function requires at least '2' argument(s)"),
        (
            "[reference('a', 'b', 'c', 'd')]",
            "'reference': function requires '1' to '3' argument(s)",
        ),
        ("[subscription('a')]", "'subscription': function requires '0' argument(s) while '1'"),
    ] {
        let error = TemplateText::parse(written).unwrap_err().to_string();
        assert!(error.contains(expected), "{written}: {error}");
    }
}

#[test]
fn long_and_deeply_nested_expressions_are_rejected() {
    let of_length = |length: usize| format!("['{}']", "x".repeat(length - 4));
    assert!(TemplateText::parse(&of_length(MAX_EXPRESSION_CHARS)).is_ok());
    let too_long = TemplateText::parse(&of_length(MAX_EXPRESSION_CHARS + 1));
    assert_eq!(too_long, Err(ParseExpressionError::TooLong(MAX_EXPRESSION_CHARS + 1)));
    let nested = |depth: usize| format!("[{}'x'{}]", "concat(".repeat(depth), ")".repeat(depth));
    assert!(TemplateText::parse(&nested(MAX_NESTING - 1)).is_ok());
    assert_eq!(TemplateText::parse(&nested(MAX_NESTING)), Err(ParseExpressionError::TooDeep));
    let unclosed = format!("[{}]", "variables('x')[".repeat(1_500));
    assert_eq!(TemplateText::parse(&unclosed), Err(ParseExpressionError::TooDeep));
}

/// Writes an expression as in templates.
fn written(expression: &TemplateExpression) -> String {
    let operand = match &expression.operand {
        TemplateOperand::Text(text) => format!("'{}'", text.replace('\'', "''")),
        TemplateOperand::Integer(number) => number.to_string(),
        TemplateOperand::Call(call) => {
            let arguments: Vec<_> = call.arguments.iter().map(written).collect();
            format!("{}({})", call.function.name(), arguments.join(" , "))
        }
    };
    let accesses = expression.accesses.iter().map(|access| match access {
        MemberAccess::Property(name) => format!(".{name}"),
        MemberAccess::Index(index) => format!("[{}]", written(index)),
    });
    std::iter::once(operand).chain(accesses).collect()
}

pub(crate) fn any_expression() -> impl Strategy<Value = TemplateExpression> {
    let leaf = prop_oneof![
        "[a-zé' \\[\\]{}0-3]{0,8}".prop_map(|it| text(&it)),
        any::<i64>().prop_map(|number| value(TemplateOperand::Integer(number))),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let arguments = prop::collection::vec(inner.clone(), 0..4);
        let calls =
            (prop::sample::select(TemplateFunction::ALL.to_vec()), arguments, inner.clone())
                .prop_map(|(function, mut arguments, spare)| {
                    let count = function.argument_count();
                    arguments.truncate(*count.end());
                    arguments.resize(arguments.len().max(*count.start()), spare);
                    call(function, arguments)
                });
        let accesses = prop::collection::vec(
            prop_oneof![
                "[a-z_][a-z0-9_]{0,4}".prop_map(|name| property(&name)),
                inner.prop_map(index)
            ],
            0..3,
        );
        (calls, accesses).prop_map(|(call, accesses)| with(call, accesses))
    })
}

proptest! {
    #[test]
    fn parser_never_panics(text in "\\[?[a-z(),.'\\[\\]0-9 é\\-]{0,40}\\]?") {
        let _parsed = TemplateText::parse(&text);
    }

    #[test]
    fn parser_never_panics_on_any_text(text in "\\PC{0,40}") {
        let _parsed = TemplateText::parse(&format!("[{text}]"));
    }

    #[test]
    fn written_expression_is_parsed_to_itself(expression in any_expression()) {
        let parsed = TemplateText::parse(&format!("[ {} ]", written(&expression)));
        prop_assert_eq!(parsed, Ok(TemplateText::Expression(expression)));
    }
}
