import com.azure.core.credential.TokenCredential;
import com.azure.core.http.HttpClient;
import com.azure.core.http.HttpPipelineCallContext;
import com.azure.core.http.policy.HttpPipelineSyncPolicy;
import com.azure.core.util.BinaryData;
import com.azure.core.util.polling.SyncPoller;
import com.azure.security.keyvault.keys.KeyClient;
import com.azure.security.keyvault.keys.KeyClientBuilder;
import com.azure.security.keyvault.keys.models.CreateEcKeyOptions;
import com.azure.security.keyvault.keys.models.CreateOctKeyOptions;
import com.azure.security.keyvault.keys.models.CreateRsaKeyOptions;
import com.azure.security.keyvault.keys.models.DeletedKey;
import com.azure.security.keyvault.keys.models.ImportKeyOptions;
import com.azure.security.keyvault.keys.models.JsonWebKey;
import com.azure.security.keyvault.keys.models.KeyCurveName;
import com.azure.security.keyvault.keys.models.KeyType;
import com.azure.security.keyvault.keys.models.KeyVaultKey;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.math.BigInteger;
import java.security.GeneralSecurityException;
import java.security.KeyPairGenerator;
import java.security.spec.ECGenParameterSpec;
import java.time.Duration;
import java.util.HexFormat;
import java.util.function.Function;
import java.util.function.Supplier;

/** The lifecycle of keys of every type that a vault serves: each is created, rotated, imported and deleted. */
final class KeyTypes {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();

    private final KeyClient client;
    private final SentPublicExponent sentPublicExponent = new SentPublicExponent();

    KeyTypes(String vault, TokenCredential credential, HttpClient http) {
        client = new KeyClientBuilder()
            .httpClient(http)
            .vaultUrl(vault)
            .credential(credential)
            .addPolicy(sentPublicExponent)
            .buildClient();
    }

    void run() throws GeneralSecurityException {
        for (int size : new int[] {2048, 3072, 4096}) {
            runRsaKey(size);
        }
        runEcKey(KeyCurveName.P_256, newEcKey("secp256r1"));
        runEcKey(KeyCurveName.P_384, newEcKey("secp384r1"));
        runEcKey(KeyCurveName.P_521, newEcKey("secp521r1"));
        runEcKey(KeyCurveName.P_256K, secp256k1Key());
        runHardwareKeys();
    }

    private void runRsaKey(int size) throws GeneralSecurityException {
        String key = "an RSA key of " + size + " bits";
        String name = "java-rsa-" + size;
        // The options have no public exponent, but the SDK sends one.
        CreateRsaKeyOptions options = new CreateRsaKeyOptions(name).setKeySize(size);
        KeyVaultKey created = step(
            "create " + key,
            () -> client.createRsaKey(options),
            it -> keyFacts(it).set("sent_public_exponent", sentPublicExponent.value));
        KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
        generator.initialize(size);
        runLaterSteps(key, created, JsonWebKey.fromRsa(generator.generateKeyPair()));
    }

    private void runEcKey(KeyCurveName curve, JsonWebKey imported) {
        String key = "a " + curve + " key";
        CreateEcKeyOptions options = new CreateEcKeyOptions("java-" + curve).setCurveName(curve);
        KeyVaultKey created = step("create " + key, () -> client.createEcKey(options), KeyTypes::keyFacts);
        runLaterSteps(key, created, imported);
    }

    /** Rotates and imports a key, which both add a version, and deletes it. */
    private void runLaterSteps(String key, KeyVaultKey created, JsonWebKey imported) {
        String name = created.getName();
        step(
            "rotate " + key,
            () -> client.rotateKey(name),
            it -> keyFacts(it).put("same_key", isSamePublicKey(it.getKey(), created.getKey())));
        step(
            "import " + key,
            () -> client.importKey(name, imported),
            it -> keyFacts(it).put("same_key", isSamePublicKey(it.getKey(), imported)));
        step(
            "delete " + key,
            () -> deleteKey(name),
            it -> JSON.createObjectNode().put("name", it.getName()).put("recovery_id", it.getRecoveryId()));
    }

    /** Keys of types that need a hardware security module. */
    private void runHardwareKeys() throws GeneralSecurityException {
        step(
            "create an RSA key in a hardware security module",
            () -> client.createRsaKey(new CreateRsaKeyOptions("java-rsa-hsm").setHardwareProtected(true)),
            KeyTypes::keyFacts);
        step(
            "create an EC key in a hardware security module",
            () -> client.createEcKey(new CreateEcKeyOptions("java-ec-hsm").setHardwareProtected(true)),
            KeyTypes::keyFacts);
        step(
            "create a symmetric key",
            () -> client.createOctKey(new CreateOctKeyOptions("java-oct").setKeySize(256)),
            KeyTypes::keyFacts);
        step(
            "create a symmetric key in a hardware security module",
            () -> client.createOctKey(new CreateOctKeyOptions("java-oct-hsm").setHardwareProtected(true)),
            KeyTypes::keyFacts);
        JsonWebKey key = newEcKey("secp256r1");
        step(
            "import a key to a hardware security module",
            () -> client.importKey(new ImportKeyOptions("java-imported-hsm", key).setHardwareProtected(true)),
            KeyTypes::keyFacts);
    }

    private DeletedKey deleteKey(String name) {
        SyncPoller<DeletedKey, Void> poller = client.beginDeleteKey(name);
        return poller.setPollInterval(Duration.ofMillis(20)).waitForCompletion().getValue();
    }

    /** Runs a call and prints the facts of its result, or the error that the client reported. */
    private static <T> T step(String name, Supplier<T> call, Function<T, JsonNode> facts) {
        ObjectNode line = JSON.createObjectNode().put("step", name);
        try {
            T result = call.get();
            System.out.println(line.set("facts", facts.apply(result)));
            return result;
        } catch (RuntimeException error) {
            System.out.println(line.set("error", Clients.errorDetails(error)));
            return null;
        }
    }

    private static ObjectNode keyFacts(KeyVaultKey key) {
        JsonWebKey jwk = key.getKey();
        ObjectNode facts = JSON.createObjectNode()
            .put("version", key.getProperties().getVersion())
            .put("type", key.getKeyType().toString())
            .put("private", jwk.getD() != null);
        return jwk.getCurveName() == null
            ? facts.put("bits", new BigInteger(1, jwk.getN()).bitLength())
            : facts.put("curve", jwk.getCurveName().toString());
    }

    private static boolean isSamePublicKey(JsonWebKey one, JsonWebKey other) {
        return isSameNumber(one.getN(), other.getN())
            && isSameNumber(one.getX(), other.getX())
            && isSameNumber(one.getY(), other.getY());
    }

    /** The SDK encodes some numbers with a leading zero. */
    private static boolean isSameNumber(byte[] one, byte[] other) {
        return one == null ? other == null : new BigInteger(1, one).equals(new BigInteger(1, other));
    }

    private static JsonWebKey newEcKey(String curve) throws GeneralSecurityException {
        KeyPairGenerator generator = KeyPairGenerator.getInstance("EC");
        generator.initialize(new ECGenParameterSpec(curve));
        return JsonWebKey.fromEc(generator.generateKeyPair(), generator.getProvider());
    }

    /** A fixed test key, because the JDK has no curve secp256k1. */
    private static JsonWebKey secp256k1Key() {
        return new JsonWebKey()
            .setKeyType(KeyType.EC)
            .setCurveName(KeyCurveName.P_256K)
            .setD(HEX.parseHex("48124d4ec35654f6fbd6b4c7484b988fd7a6e7a8cd06aad5f1aca3bdb644bbf7"))
            .setX(HEX.parseHex("f0a223c089a1fb7a6ad8736697abca59b211363079be3885b7ec1fa1d82e5215"))
            .setY(HEX.parseHex("37223bc8d73e2295c9146958f7fb1bc8e205a3a1b284501c82fccd8f4902037a"));
    }

    /** Reads the field {@code public_exponent} of the last request. */
    private static final class SentPublicExponent extends HttpPipelineSyncPolicy {
        private JsonNode value;

        @Override
        protected void beforeSendingRequest(HttpPipelineCallContext context) {
            BinaryData body = context.getHttpRequest().getBodyAsBinaryData();
            try {
                value = body == null ? null : JSON.readTree(body.toBytes()).get("public_exponent");
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
