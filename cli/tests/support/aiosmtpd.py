"""A server of mail that wants STARTTLS and a password: the file for its authority, the user and the password are its arguments. It prints its
port, and then each mail as a line of JSON."""
import asyncio, ctypes, email, email.policy, json, ssl, sys

ctypes.CDLL(None).prctl(1, 9)

import trustme
from aiosmtpd.smtp import SMTP, AuthResult

authority, user, password = sys.argv[1:]
ca = trustme.CA()
ca.cert_pem.write_to_path(authority)
tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
ca.issue_cert("localhost").configure_cert(tls)


class Handler:
    async def handle_DATA(self, server, session, envelope):
        mail = email.message_from_bytes(envelope.content, policy=email.policy.default)
        print(json.dumps({
            "from": envelope.mail_from, "to": envelope.rcpt_tos, "is_encrypted": session.ssl is not None,
            "is_signed_in": session.authenticated, "headers": dict(mail.items()), "text": mail.get_content().replace("\r\n", "\n"),
            "defects": [repr(defect) for part in mail.walk() for defect in part.defects],
        }), flush=True)
        return "250 2.0.0 taken"


def authenticator(server, session, envelope, mechanism, data):
    return AuthResult(success=(data.login, data.password) == (user.encode(), password.encode()))


async def main():
    loop = asyncio.get_running_loop()
    smtp = lambda: SMTP(Handler(), hostname="localhost", tls_context=tls, require_starttls=True, auth_required=True,
                        authenticator=authenticator, loop=loop)
    server = await loop.create_server(smtp, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
