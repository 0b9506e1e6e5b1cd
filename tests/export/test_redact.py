"""`--redact` removes secrets and names from every format."""

from __future__ import annotations

import json
import re
import string

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.export.made import BOTH, claude, exported, transcript
from toolspan.export.session_export import SessionExport
from toolspan.redaction.redact import SecretRedactor
from toolspan.testing import TranscriptBuilder, claude_results

LETTERS = string.ascii_letters + string.digits


def random(least: int, alphabet: str = LETTERS) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=least, max_size=least + 12)


SECRETS = st.one_of(
    random(24).map("sk-ant-api03-{}".format),
    random(24).map("sk-proj-{}".format),
    random(36).map("ghp_{}".format),
    random(30).map("github_pat_{}".format),
    random(20).map("glpat-{}".format),
    random(16, string.ascii_uppercase + string.digits).map("AKIA{}".format),
    random(35).map("AIza{}".format),
    random(24).map("xoxb-{}".format),
    random(36).map("npm_{}".format),
    random(30).map("hf_{}".format),
    random(24).map("sk_live_{}".format),
    st.tuples(random(20), random(20), random(20)).map(lambda t: f"eyJ{t[0]}.eyJ{t[1]}.{t[2]}"),
)
FILE_ENDINGS = (".json", ".key", ".pem", ".toml", ".txt", ".md", ".env")
PASSWORDS = (
    random(8, LETTERS + "!#%*+-./?^_~$").map("Zq7{}".format).filter(lambda word: not word.endswith(FILE_ENDINGS))
)
EMAILS = st.tuples(random(5), random(4), st.sampled_from(["com", "org", "co.uk"])).map(
    lambda t: f"{t[0]}.x@{t[1]}.{t[2]}"
)
ADDRESSES = st.one_of(
    st.ip_addresses(v=4, network="10.0.0.0/8").map(str),
    st.ip_addresses(v=4, network="192.168.0.0/16").map(str),
    st.ip_addresses(v=6, network="2001:db8::/32").map(str),
)
USERS = random(6, string.ascii_lowercase).map("zq{}".format)
AROUND = st.sampled_from(["{}", "see {} there", "x={};", '{{"a": "{}"}}', "({})", "\n{}\n", "'{}'"])
NAMED = st.sampled_from(
    ["password={}", "export API_KEY={}", '{{"client_secret": "{}"}}', "--token {}",
     "Authorization: Bearer {}", "https://mira:{}@example.org/x", "DB_PASSWORD: {}",
     r'"{{\"api_key\": \"{}\"}}"']
)  # fmt: skip
HOMES = st.sampled_from(["/home/{}/x", "/Users/{}", "C:\\Users\\{}\\x", "cd /home/{}; by {}"])
QUICK = settings(
    max_examples=12,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking whole sessions takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def nowhere(secret: str, text: str) -> None:
    """Plant a text in sessions of both clients; the secret is in no export of them."""
    for make in BOTH:
        for form, output in exported(make(text), SecretRedactor).items():
            plain = json.dumps(secret)[1:-1]
            assert secret not in output, form
            assert plain not in output, form


@QUICK
@given(SECRETS, AROUND)
@example("AIza" + "0" * 35, "{}")
@example("AKIA" + "0" * 16, "{}")
def test_keys_are_in_no_format(secret: str, around: str) -> None:
    nowhere(secret, around.format(secret))


@QUICK
@given(PASSWORDS, NAMED)
def test_values_whose_name_says_secret_are_in_no_format(secret: str, around: str) -> None:
    nowhere(secret, around.format(secret))


@QUICK
@given(st.one_of(EMAILS, ADDRESSES), AROUND)
def test_mail_and_network_addresses_are_in_no_format(secret: str, around: str) -> None:
    nowhere(secret, around.format(secret))


@QUICK
@given(USERS, HOMES)
def test_names_of_users_are_in_no_format(name: str, around: str) -> None:
    nowhere(name, around.replace("{}", name))


def test_the_same_thing_has_the_same_placeholder() -> None:
    redaction = SecretRedactor()

    texts = [redaction.redact_text(text) for text in ("a@b.org", "c@d.org, a@b.org", "mail a@b.org")]

    assert texts == ["[email-1]", "[email-2], [email-1]", "mail [email-1]"]


def test_a_user_name_is_replaced_before_its_home_folder_occurs() -> None:
    (main, _) = claude("first mira, then /home/mira/notes")

    message = exported([main], SecretRedactor)["markdown"]

    assert "first \\[user-" in message
    assert "mira" not in message


def test_given_names_are_replaced() -> None:
    redaction = SecretRedactor(["zora"])

    assert redaction.redact_text("Zora's notes, -home-zora-notes; azora stays") == (
        "[user-1]'s notes, -home-[user-1]-notes; azora stays"
    )


@pytest.mark.parametrize(
    "text",
    [
        "task-management-system",
        "127.0.0.1 and ::1 and 12:34:56 and std::fmt",
        "max_tokens=500",
        "version 3.11.2",
        "author: somebody",
        "src/app/models.py",
        "/home/ is a folder",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert SecretRedactor().redact_text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        r"{\"say\": \"one\ntwo@words.org\"}",
        'password: "two words"',
        "password='two words'",
        '{"password": "two \\" words"}',
        "-----BEGIN RSA PRIVATE KEY-----\ntwo\nwords\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\ntwo words, cut",
        "Author: two words <x@y.org>",
        "token=[two,words",
    ],
)
def test_a_secret_is_replaced_to_its_end(text: str) -> None:
    message = SecretRedactor().redact_text(text)

    assert "two" not in message
    assert "words" not in message


def test_a_secret_at_a_cut_is_replaced_as_a_whole() -> None:
    text = "x " * 19_990 + "sk-ant-" + "A1b2" * 12 + " y" * 10_000
    builder = TranscriptBuilder().prompt(text)
    builder.result(builder.call("Bash", {"command": text}), claude_results.ran(text))

    assert all("A1b2" not in output for output in exported([transcript(builder.data())], SecretRedactor).values())


def test_everything_under_the_key_of_a_secret_is_replaced() -> None:
    call = next(SessionExport(claude("x")[:1]).calls())
    given_ = {"passwords": ["one", {"two": 3}], "api-key": 4, "token": None, "path": "src"}

    veiled = SecretRedactor().redact_record(replace(call, input=given_))

    assert veiled.input == {
        "passwords": ["[secret-1]", {"two": "[secret-2]"}],
        "api-key": "[secret-3]",
        "token": None,
        "path": "src",
    }


def test_a_value_nested_too_deeply_is_left_out() -> None:
    deep: object = "mira@example.org"
    for _ in range(2_000):
        deep = [deep]
    call = next(SessionExport(claude("x")[:1]).calls())

    veiled = SecretRedactor().redact_record(replace(call, input=deep))

    assert veiled.input == "[nested too deeply]"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("DB_PASS=zqhunter", "zqhunter"),
        ('{"user": "a", "pass": "zqhunter"}', "zqhunter"),
        ("curl --user ann:zqhunter https://example.net", "zqhunter"),
        ("mysql -u root -pzqhunter shop", "zqhunter"),
        ("AccountName=a;AccountKey=" + "Zq7/" * 21 + "Zw==;x", "Zq7/Zq7"),
        ("https://hooks." + "slack.com/services/T01234567/B01234567/" + "Zq7x" * 6, "Zq7x"),
        ("zQ7/kX9bLm2PqRs+Tv4W" + "yAa6CcE8fGhJ1iNoUuDd", "yAa6"),
        ("4111 1111 " + "1111 1111", "1111"),
        ("DE89 3704 0044 " + "0532 0130 00", "0532"),
        ("call +49 170 " + "1234567", "1234567"),
        ("ping db01.corp.internal", "db01"),
        ("<password>zqhunter</password>", "zqhunter"),
        ("mira in ~/.claude/projects/-Users-mira-tide/x and /Users/mira", "mira"),
        ("curl -u 'ann:zqhunter' https://example.net", "zqhunter"),
        ("storage account zQ7/kX9bLm2PqRs+Tv4WyAa6C" + "cE8fGhJ1iNoUuDd5zQ7==", "yAa6"),
        ('<input type="password" name="p" value="zqhunter">', "zqhunter"),
        ("the password is zqhunter7.", "zqhunter7"),
        ("machine h login ann password zqhunter", "zqhunter"),
        ("deploy --token zqhunter7 --fast", "zqhunter7"),
        ("{password: zqhunter7}", "zqhunter7"),
        ("LOGIN_PIN=493817", "493817"),
        ("signature: zq7a8b9c0d", "zq7a8b9c0d"),
        ("token: 493817265041", "493817265041"),
        ("DB_PASSWORD=my-own-password", "my-own-password"),
        ("password=zq~#hunter", "zq~#hunter"),
        ("password: 493817", "493817"),
        ("(secret=zq.hunter7)", "zq.hunter7"),
        ('<field name="password">zqhunter</field>', "zqhunter"),
        ("--- a/home/zora/x and https://example.com/x?file=/home/zora/y", "zora"),
        (r"C:\Users\nora\x and first\nnora", "nora"),
        ("podman login -u ann -p zqhunter registry.example.net", "zqhunter"),
        ("connected to host/10.1.2.3:8080", "10.1.2.3"),
        ("- name: DB_PASSWORD\n  value: zqhunter7\n", "zqhunter7"),
        ('variable "db_password" {\n  type = string\n  default = "zqhunter7"\n}', "zqhunter7"),
        ("twine upload -u ann -p zqhunter dist/*", "zqhunter"),
        ("sqlplus ann/zqhunter@//db:1521/XE", "zqhunter"),
        ('auth=("ann", "zqhunter")', "zqhunter"),
        ("kinit ann <<< Zqhunter7_x", "Zqhunter7_x"),
        ("INSERT INTO users (name, password) VALUES ('ann', 'zqhunter');", "zqhunter"),
        ("db.example.net:5432:shop:ann:zqhunter7", "zqhunter7"),
        ('let pass: &str = "zqhunter7";', "zqhunter7"),
        ("contraseña: zqhunter7", "zqhunter7"),
        ("mot de passe : zqhunter7", "zqhunter7"),
        ('<Pass encoding="base64">enFodW50ZXI3enFodW50ZXI3</Pass>', "enFodW50"),
        ("SetEnv DB_PASSWORD Zqhunter_7x", "Zqhunter_7x"),
        ('.withPassword("Zqhunter_7x")', "Zqhunter_7x"),
        ("process.env.SECRET || 'Zqhunter_7x'", "Zqhunter_7x"),
        ("acme_live_" + "zq7a8b9c0d1e2f3g4h5j", "zq7a8b9c"),
        ("https://ann@example.org:zqhunter@example.net/x", "zqhunter"),
        ("drwxr-xr-x 2 zora staff 64 Jan 1 10:00 x", "zora"),
        ("uid=1000(zora) gid=1000(zora)", "zora"),
        ("C--Users-zora-tide", "zora"),
        ("user%3Dann%40example.org", "ann%40"),
        ("ship to 742 Evergreen Terrace, Springfield", "742 Evergreen"),
        ("NHS number: 943 476 5919", "943 476"),
        ("redis-cli -h r AUTH default monkeyisland", "monkeyisland"),
        ("AUTH monkey12", "monkey12"),
        ("ACL SETUSER ann on >monkey12 ~* +@all", "monkey12"),
        ("user ann on >monkey12 +@all", "monkey12"),
        ("CONFIG SET requirepass 'monkey12'", "monkey12"),
        ("ENV REDIS_PASS monkey12", "monkey12"),
        ('jwt.sign({id: "x1"}, "monkeyisland", {expiresIn: "1h"})', "monkeyisland"),
        ("crypto.createHmac('sha256', 'monkeyisland')", "monkeyisland"),
        ('token.SignedString([]byte("monkeyisland"))', "monkeyisland"),
        ("printf '%s' monkey12 | helm registry login r --password-stdin", "monkey12"),
        ("echo 'monkey12' | tool --password-stdin", "monkey12"),
        ("gpg --passphrase-file <(echo monkey12) -d f", "monkey12"),
        ("use monkey12 as password", "monkey12"),
        ("the password for root is `monkey12`", "monkey12"),
        ("The new password will be monkey12", "monkey12"),
        ("my password's monkey12", "monkey12"),
        ("Log in with admin / monkey12", "monkey12"),
        ("Your one-time code is 706862", "706862"),
        ("CREATE LOGIN x WITH PASSWORD = N'monkey12'", "monkey12"),
        ('<input value="4R0HiT5SaPiGvYwM" type="hidden" name="csrf_token">', "4R0HiT5S"),
        ("&quot;password&quot;:&quot;monkey12&quot;", "monkey12"),
        ('const apiKey string = "GNbzqS54Rab3cqm6"', "GNbzqS54"),
        ('smtp.PlainAuth("", "a", "monkey12", "host")', "monkey12"),
        ("WIFI:T:WPA;S:x;P:monkey12;;", "monkey12"),
        ("Mobil: 0171/1869375", "1869375"),
        ("born on 1987-04-12", "1987-04-12"),
        ("kind: Secret\ndata:\n  dsn: bW9ua2V5MTI=\n", "bW9ua2V5"),
        ("name,password,role\nann,Monkey_12x,admin\n", "Monkey_12x"),
        ("| user | password |\n|---|---|\n| ann | Monkey_12x |", "Monkey_12x"),
        ("<key>SmtpPassword</key>\n  <string>monkey12</string>", "monkey12"),
        ("smtp_password = NIqMruSHA0Ot", "NIqMruSHA0Ot"),
        ("-----BEGIN OpenVPN Static key V1-----\nb38e749edb622a8b401e5952fa4684d1\n", "b38e749e"),
        ("Unseal Key 1: tPZAHIH/6Q9mOfccxoW8JRdAaaylUaFGUfGDSxURx7f7", "tPZAHIH"),
        ("https://app.example.com/password/reset/nH4jYhlyFkf4k3EoyWmLgu", "nH4jYhly"),
        ("wandb login ad5f234a844df25f2a634659df70c6331a5fabd5", "ad5f234a"),
        ("Rollbar.init('e8ce3db948e59abbe70b0e0709f7c517')", "e8ce3db9"),
        ('MNEMONIC="above acid actor adapt afraid agent alarm album alert alley alpha amber"', "acid actor"),
        ("oathtool --totp -b 72NVNZZDU4G6P6RM", "72NVNZZD"),
        ("echo -n Monkey12 | cryptsetup luksOpen /dev/sdb1 data -", "Monkey12"),
        ("SELECT pgp_sym_decrypt(data, 'monkey12') FROM t;", "monkey12"),
        ("National Insurance: AB 12 34 56 C", "12 34 56"),
        ("codice fiscale: RSSMRA85T10A562S", "RSSMRA85"),
        ("account_number: 2346338854", "2346338854"),
        ('"latitude": 59.329323', "59.329323"),
        ('"full_name": "Zora Lindqvist"', "Lindqvist"),
        ('"street": "Storgatan 14B"', "Storgatan"),
        ("<tr><td>Password</td>\n<td>k7Rw2mQx</td></tr>", "k7Rw2mQx"),
        ("<dt>API token</dt><dd><code>tk-7Hs92Kd81Lq03Zx</code></dd>", "7Hs92Kd8"),
        ("password: >-\n  letMeIn_7786\nnext: 1", "letMeIn"),
        ('"{\\\\\\"secret\\\\\\": \\\\\\"olnQRASkWckIzAxayBsmQPmfue\\\\\\"}"', "olnQRASk"),
        ("smtp://svc:P@ssw0rd!2345@mail:587", "ssw0rd"),
        ("SSHPASS=n0tT0day", "n0tT0day"),
        ("JSESSIONID=Ym8zWiY3xS0OpyIUKC2LACe8Kv4o6NSs; Path=/app", "Ym8zWiY3"),
        ("etcdctl --user root:qwertz99 get x", "qwertz99"),
        ("Authorization: Bearer Zq7task_type was refused by the server", "Zq7task_type"),
        ("$ANSIBLE_VAULT;1.1;AES256\n62313365396662343061393464336163383764373764613633653634", "62313365"),
        (" id | password_hash\n----+----\n  1 | 5f4dcc3b5aa765d61d8327deb882cf99", "5f4dcc3b"),
        ("name,phone\nDora,079 123 45 67", "079 123"),
        ("Name,Date of birth\nx,3 March 1984", "March"),
        ("homePhone: 0171/2345678", "2345678"),
        ("<th>Date of birth</th><td>09 Feb 1975</td>", "Feb 1975"),
        ('<input name="passport_number" value="L8988901C">', "L8988901C"),
        ("born on March 3, 1984", "March 3"),
        ("Geburtsdatum: 03.04.1971", "03.04.1971"),
        ("BIC: COBADEFFXXX", "COBADEFF"),
        ("numéro de sécurité sociale : 1 84 12 76 451 089 46", "451 089"),
        ("call me at 06 12 34 56 78 tomorrow", "34 56"),
        ("billing address: 55 King St W, Toronto", "King St"),
        ('"customerName": "Ivan Petrov"', "Petrov"),
        ("https://maps.example.net/?q=48.137154,11.576124", "48.137154"),
        ("at 40.7128° N, 74.0060° W", "74.0060"),
        ("hwaddr 3c22.fb9a.107e", "fb9a"),
        ("clave_secreta: k7Rw2mQxT9vLpZ4s", "k7Rw2mQx"),
        ('mdp = "monkey_12"', "monkey_12"),
        ("Passwort für den Server: MonkeyIsland12", "MonkeyIsland12"),
        ("la contraseña del servidor es monkey_12", "monkey_12"),
        ("GET /callback?code=k7Rw2mQxT9vLpZ4s&state=x HTTP/1.1", "k7Rw2mQx"),
        ('ds.setPassword("monkey12");', "monkey12"),
        ("snmpwalk -v3 -A monkey12 -X island34 host", "island34"),
        ('#define WIFI_PASS "monkey.12"', "monkey.12"),
        ('Map("password" -> "monkey12")', "monkey12"),
        ('form-data; name="password"\n\nmonkey-12', "monkey-12"),
        ("**Password:** Monkey_12x", "Monkey_12x"),
        ("<b>Password:</b> Monkey_12x", "Monkey_12x"),
        ("| API key | k7Rw2mQxT9vLpZ4s |", "k7Rw2mQx"),
        ("if (token !== 'k7Rw2mQxT9vLpZ4s') throw", "k7Rw2mQx"),
        ('PASSWORDS = ["Monkey_12x", "Island_34y"]', "Island_34y"),
        ("passwords:\n  - monkey12\n  - island34\n", "island34"),
        ('ENC_KEY = bytes.fromhex("61aa8c8aebc23b1213ccf3c342c1830b")', "61aa8c8a"),
        ('return "k7Rw2mQxT9vLpZ4s"  # api key', "k7Rw2mQx"),
        ("username admin password 7 413B2551BBB4E7", "413B2551"),
        ("reg add HKLM\\X /v DefaultPassword /t REG_SZ /d Monkey12x", "Monkey12x"),
        ("Recovery codes: 8f3k-29dk p2m4-77xq", "77xq"),
        ("<AdminPassword><Value>Monkey_12x</Value></AdminPassword>", "Monkey_12x"),
        ('store.load(stream, "monkey12".toCharArray());', "monkey12"),
        ('store.load(stream, "monkeyisland".toCharArray());', "monkeyisland"),
        ("keys:\n  password:\n    - monkey12\n    - island34\n", "island34"),
        ("x.org\tFALSE\t/\tTRUE\t1999999999\tid\t8f7d6c5b4a39281706f5", "8f7d6c5b"),
        ('get(url, cookies={"session": "8f7d6c5b4a39281706f5e4d3"})', "8f7d6c5b"),
        ("htpasswd -b -c .htpasswd admin Monkey12", "Monkey12"),
        ("uid=1001(mirabel) gid=1001(mirabel) groups=1001(mirabel)", "mirabel"),
        ("alter user scott identified by monkey12;", "monkey12"),
        ("the root pw was changed to Monkey12x last night", "Monkey12x"),
        (r"net use Z: \\nas\temp /user:CORP\ann Monkey12 /persistent:yes", "Monkey12"),
        (r"NET USE \\nas\temp Monkey12 /USER:ann", "Monkey12"),
        ("Attach Database 'x' As y Key 'monkeyisland'", "monkeyisland"),
        ("'monkeyisland' | ConvertTo-SecureString -AsPlainText", "monkeyisland"),
        ("admin_password: !vault monkey12", "monkey12"),
        ("curl -X POST -F user=ann -F password=monkeyisland https://x", "monkeyisland"),
        ("wmic /node:a /user:ann /password:monkeyisland os get name", "monkeyisland"),
        ("Benutzer: ann Passwort: monkeyisland", "monkeyisland"),
        ("username/password: ann/monkeyisland", "monkeyisland"),
        ("erlangCookie: k7Rw2mQxT9vLpZ4s", "k7Rw2mQx"),
        ("machine x\n  login ann\n  password monkey-island\n", "monkey-island"),
        ("GRANT ALL ON *.* TO x IDENTIFIED WITH mysql_native_password BY 'monkeyisland';", "monkeyisland"),
        ('terraform apply -var="db_password=monkeyisland"', "monkeyisland"),
        ("Connect-Server -User admin -Password monkeyisland", "monkeyisland"),
        ("cmdkey /add:srv01 /user:CORP\\ann /pass:monkeyisland", "monkeyisland"),
        ("-Password (ConvertTo-SecureString monkey12 -AsPlainText -Force)", "monkey12"),
        ('connect("dbname=app user=ann password=monkeyisland host=db")', "monkeyisland"),
        ('release { storePassword "monkeyisland" }', "monkeyisland"),
        ("login: ann / pw: monkeyisland", "monkeyisland"),
        ("'password' => env('DB_PASSWORD', 'monkeyisland'),", "monkeyisland"),
        ("file:///C:/Users/Zora%20Lindqvist/a.txt", "Lindqvist"),
        ("runas /user:CORP\\mirabel cmd", "mirabel"),
        ("Accepted publickey for mirabel from 10.4.7.9 port 22 ssh2", "mirabel"),
        ("Sep 12 10:00:01 box sudo: mirabel : TTY=pts/0", "mirabel"),
        ("remember_me=aZ8kLmN3pQ7rT2vX5yB9cD; Max-Age=31536000; Secure", "aZ8kLmN3"),
        ("'password' => 'required|monkeyisland',", "monkeyisland"),
        ("'password' => 'monkeyisland|string',", "monkeyisland"),
        ('"password": "required|string|min:monkey12"', "monkey12"),
        ('"password": "string,Monkey"', "Monkey"),
        ('"password": "required string|monkey12"', "monkey12"),
        ("'password' => 'required|same:swordfish',", "swordfish"),
        ("'password' => 'required|string|regex:/^swordfish$/',", "swordfish"),
        ('"password": "text,unique=correcthorse"', "correcthorse"),
        ('"password": "string,eqfield=SwordFish"', "SwordFish"),
        ("set_password 'Tr0ub4dor'", "Tr0ub4dor"),
        ("PGPASSWORD 'swordfish'", "swordfish"),
        ("-dbpassword 'swordfish'", "swordfish"),
        ("ALTER ROLE app PASSWORD'=swordfish'", "swordfish"),
        ("'new_password' => 'swordfish'", "swordfish"),
    ],
)
def test_a_planted_item_is_gone(text: str, secret: str) -> None:
    redactor = SecretRedactor()

    assert secret not in redactor.redact_text(redactor.redact_text("/Users/mira/x\n" + text))


@pytest.mark.parametrize(
    "text",
    [
        "Per-million-token USD prices",
        "Fn::Condition, an enclosing function",
        "Address already in use",
        "address: 0x401000",
        "first_name: String",
        "sin = 0.84147098",
        "location: src/main.py, line 12",
        "call me maybe 3 times",
        "mysql -u root -p app",
        "docker run --user 1000:1000 -t app:1.2 x",
        "<td>Password</td><td>is required</td>",
        "description: >-\n  The password of release 12",
        "__all__ = (\n    'secret',\n    'SecretStr2x',\n    'SecretBytes3y',\n)",
        "| option | token |\n|---|---|\n| --budget | maximum number |",
        '"sessionId": "0197a3c2-5f1e-7d3b-9c4a-1b2c3d4e5f60"',
        '"first_name": "string", "lastName": "Doe"',
        "sign: the signing step",
        "def set_cookie(self, cookie: Cookie) -> None:",
        "Sets an appropriate 'Cookie:' HTTP header on the `Request`.",
        'KEY_USAGE = ObjectIdentifier("2.5.29.15")',
        "3.2.0.1 (2006-04-14)",
        '"fields": ("username", "usable_password", "password1", "password2"),',
        'self.add_message("unnecessary-pass", node=node)',
        "cls.set_password = wrapper",
        "key_password=key_password,",
        '_START = b"-----BEGIN OPENSSH PRIVATE KEY-----"',
        "aes256-gcm@openssh.com",
        "postgresql://user@host/dbname",
        "private_key: PKCS7PrivateKeyTypes,",
        "fc_7ac6c393b6fb38c9532a6c2a3606c30208643d8ffb84908f2b",
        'git config user.name "Test User"',
        "drwxr-xr-x 2 root root 64 Jan 1 10:00 x",
        "a sub-token-list:\nnext line",
        "password:\nnext line",
        "token: str | None = None",
        'api_key = os.environ["API_KEY"]',
        "curl -u $USER:$PASSWORD https://example.net",
        "git clone git@github.com:a/b.git",
        "Chrome/120.0.6099.109",
        "0.4111111111111111",
        "threading.local()",
        "sha512 " + "Zq7/kX9b" * 7 + "==",
        "the password is required; the token is tokenized",
        "the password is 2nd",
        'password: ""',
        "x = token",
        "run the token test",
        "password = read_password()",
        "secret_key: str = field(default=None)",
        "secret: 4",
        "private_key: keys/server1.pem",
        "my_pin: 4938",
        "first_pass: two",
        "GET https://api.example.com/users/cursor and src/home/page.tsx, then cursor and page",
        "/home/index.tsx and --home-page-url",
        "icon@2x.png and a diff of +@AGENTS.md",
        'Linux 6.6.87.2-generic, extensions/2.3.4.53/manifest, "version": "8.6.5.3"',
        "192.0.2.0/24",
        "s.sendMessageWithRetriesAnd(x)",
        "http://user:password@host:80/ and redis://:$(REDIS_PASSWORD)@$(REDIS_HOST)",
        "password: ${{ secrets.TOKEN }}",
        'result == "pass" ? "PASS" : "FAIL"',
        "'Conditional Pass': 'bg-100'",
        "--pass: #16a998;",
        '<option value="pass">Passed</option>',
        "f={key:!0,ref:!0,__self:!0}",
        "`<password>`), the command (`curl`",
        "ssh user@host",
        "use sha256 as password hash",
        "pass the token as the password",
        "AUTH failed for user 3",
        "AUTH PLAIN LOGIN",
        "the password for user1 is required",
        "one-time code is 6 digits long",
        "jwt.encode(payload, key, algorithm='RS256')",
        "hmac.new(key, b'message', 'sha256')",
        "echo done | sudo tee /etc/x",
        '<input value="Log in" type="submit" name="key">',
        "born in 1987",
        "'Ed25519PrivateKey', 'Ed448PrivateKey', 'X25519Credential'",
        "Ed448PrivateKey.register(rust_openssl.ed448.Ed448PrivateKey)",
        "elif key_spec == KeySpec.SYMMETRIC_DEFAULT2x8:",
        "secrets:\n  - db-credentials\n  - name: tls\n",
        "the enclave is a passed parameter 12",
        'Arrays.sort("listen".toCharArray())',
        'cookies={"theme": "dark"}',
        r"net use Z: \\nas\temp /persistent:yes",
        "fail-to-pass/pass-to-pass tests), and more",
        "the --password option; see --password prompts",
        "login(user=name, password=user_password)",
        "theme=dark-and-very-contrasting; Path=/; Secure",
        "'password' => 'required|string',",
        "'password' => 'required|string|min:8'",
        "'password' => 'bail|required|string|between:8,255|confirmed',",
        "'new_password' => env('NEW'), 'old_password' => 'required',",
        "if 'db_password' in names and 'x' in names:",
        "'user_password' => 'sometimes|nullable|same:new_password',",
        "'current_password' => 'required|current_password',",
        "'api_key' => 'required|string|max:64',",
        "'password' => 'hashed',",
        "password: required",
        "password: string|null",
        '"password": "string"',
        '"password": "string | undefined"',
        '"password": "required,min=8"',
        '"confirm_password": "required,eqfield=Password"',
    ],
)
def test_harmless_text_stays(text: str) -> None:
    assert SecretRedactor().redact_text(text) == text


@pytest.mark.parametrize("home", ["-home-zorblatt-proj", "C:\\Users\\zorblatt\\x"])
def test_a_name_is_replaced_in_a_line_that_was_seen_before_the_name_was_known(home: str) -> None:
    redactor = SecretRedactor()
    line = "token=aZ8kLmN3pQ7rT2vX by zorblatt"

    redactor.redact_text(f"see {home}\n{line}")

    assert redactor.redact_text(f"{line}\nnext") == "token=[secret-1] by [user-1]\nnext"


@pytest.mark.parametrize("name", ["zoralind", "zora.lind", "zora-lind", "Zora Lind", "_zora", "zöra", "zora_lind"])
@pytest.mark.parametrize("form", ["by {}.", "a\\n{}\\n", "x-{}-y", "/srv/{}/a", "{}", "first\n({})\nlast", "\\t{}:"])
def test_a_name_among_thousands_is_replaced(name: str, form: str) -> None:
    redactor = SecretRedactor([*(f"person{n}x" for n in range(3_000)), name])
    text = form.format(name)

    assert redactor.redact_text(form.format("other")) == form.format("other")
    assert re.fullmatch(re.escape(form).replace(r"\{\}", r"\[user-\d+\]"), redactor.redact_text(text))


@pytest.mark.parametrize(
    "secret",
    [
        '"sk-ant-api03-' + "Zq7kX9b" * 6,
        " AKIA234567ABCDEFGH23 ",
        "AIza" + "Zq7kX9b" * 5,
        '","token":"ey' + "JhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dBjftJeZ4CVP",
        "&password=Zq7monkey&x=",
        " mira.q@example.com,",
        "\\npassword: Monkey_12x\\n",
    ],
)
@pytest.mark.parametrize("before, after", [(0, 100_000), (100_000, 0), (50_003, 50_000), (4_090, 9_000), (8_180, 20)])
def test_a_secret_in_a_long_line_of_data_is_gone(secret: str, before: int, after: int) -> None:
    redacted = SecretRedactor().redact_text("Q" * before + secret + "/" + "Q" * after)

    assert secret not in redacted
    assert len(redacted) > before


def test_all_cookies_of_a_long_header_are_replaced() -> None:
    values = [f"{n:03}" + "aZ9x" * 9 for n in range(300)]
    header = "; ".join(f"c{n}={value}" for n, value in enumerate(values))
    line = f'{"word " * 300}curl -H "Cookie: {header}" https://example.com/{"word " * 300}'

    redacted = SecretRedactor().redact_text(line)

    assert not [value for value in values if value in redacted]
    assert redacted.count("word") == 600


def test_a_token_that_is_longer_than_the_text_searched_at_once_is_replaced_to_its_end() -> None:
    token = "ey" + "JhbGciOiJIUzI1NiJ9." + "Zq7kX9b_" * 20_000 + ".dBjftJeZ4CVP"

    redacted = SecretRedactor().redact_text('{"a": "' + "Q" * 9_000 + f'", "token": "{token}", "b": 1}}')

    assert redacted == '{"a": "' + "Q" * 9_000 + '", "token": "[key-1]", "b": 1}'


def test_the_report_has_the_place_of_every_replacement_and_no_secret() -> None:
    redactor = SecretRedactor(keep_report=True)

    calls = list(SessionExport(claude("first\nDB_PASS=zqhunter")[:1], redactor=redactor).calls())

    places = {(item.call, item.field, item.placeholder) for item in redactor.replacements}
    assert (calls[0].id, "input.command:2", "[secret-1]") in places
    assert sum(redactor.counts.values()) == len(redactor.replacements)
    assert calls[0].redacted == sum(item.call == calls[0].id for item in redactor.replacements)
    assert "zqhunter" not in repr(redactor.replacements)


def test_every_format_but_none_in_full_says_that_it_is_redacted() -> None:
    redacted = exported(claude("DB_PASS=zqhunter")[:1], SecretRedactor)

    assert all("edacted" in output for output in redacted.values())
    assert "best effort" in redacted["html"]
    assert "best effort" not in exported(claude("x")[:1])["html"]


def test_a_name_is_replaced_before_and_after_the_place_that_reveals_it() -> None:
    text = "by zorblatt\nsee -home-zorblatt-proj\nfor zorblatt"

    assert "zorblatt" not in SecretRedactor().redact_text(text)
