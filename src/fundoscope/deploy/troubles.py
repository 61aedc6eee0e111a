"""What AWS, Terraform and botocore say when something is wrong; what we say instead, and what to do about it."""

import re
from pathlib import Path

from fundoscope.errors import FundoscopeError

ROLLED_BACK = (
    "the endpoint did not come up with what it was given, and goes on with what it had before",
    "try it here: fundoscope serve ARTEFACT; what it said there is in CloudWatch's logs",
)
BUSY = ("another command is at work on this deployment", "wait until it has ended")
# The first that fits is taken.
TROUBLES: tuple[tuple[str, str, str], ...] = (
    (
        r"ModelError.* error \((?P<what>[0-9]{3})\) from",
        "the container answered the photograph with an error, {what}",
        "try another --photo, and the image here: fundoscope conform IMAGE --model ARTEFACT",
    ),
    (
        r"No valid credential sources|Unable to locate credentials|NoCredentials",
        "there are no credentials for AWS here",
        "run `aws configure`, or set AWS_PROFILE",
    ),
    (
        r"config profile \((?P<what>[^)]+)\) could not be found",
        "there is no profile '{what}' for AWS here",
        "see `aws configure list-profiles`, and set AWS_PROFILE",
    ),
    (
        r"Signature expired|Signature not yet current|RequestTimeTooSkewed",
        "AWS finds that this machine's clock is wrong",
        "set it: a signature is good for five minutes",
    ),
    (
        r"SSO session|SSO token|token from sso",
        "the sign-in to AWS has expired",
        "run `aws sso login`",
    ),
    (
        r"InvalidClientTokenId|UnrecognizedClient|SignatureDoesNotMatch|InvalidAccessKeyId|ExpiredToken|InvalidToken",
        "AWS does not accept these credentials",
        "renew them; `aws sts get-caller-identity` says whether they work",
    ),
    (
        r"not authorized to perform:? (?P<what>[\w-]+:\w+)",
        "these credentials are not allowed {what}",
        "ask for that permission, or set AWS_PROFILE to who has it",
    ),
    (
        r"AccessDenied|UnauthorizedOperation|Forbidden",
        "AWS does not allow these credentials what this needs",
        "ask for the permission named in the log, or set AWS_PROFILE to who has it",
    ),
    (
        r"account-level service limit '(?P<what>[^']+)'",
        "this account may have no more: {what}",
        "ask for more at Service Quotas, or use another size or machine",
    ),
    (
        r"ResourceLimitExceeded|LimitExceeded|ServiceQuotaExceeded|TooManyBuckets",
        "a limit of this account is reached",
        "ask for more at Service Quotas; the log says which",
    ),
    (
        r"exec format error|architecture|no matching manifest",
        "the image is for another architecture than the machine",
        "build it for that: fundoscope image build --platform linux/arm64, or linux/amd64",
    ),
    (
        r"ping health check",
        "the container did not answer /ping in time",
        "try the image here: fundoscope conform IMAGE --model ARTEFACT",
    ),
    (
        r"BucketAlreadyExists|AlreadyExistsException|EntityAlreadyExists|Cannot create already existing",
        "something of that name exists, and is not part of this deployment",
        "use another --name, or remove it first; the log says what it is",
    ),
    (
        r"Could not find (?P<what>endpoint|model)",
        "AWS has no such {what} any more",
        "bring it up again: fundoscope deploy apply …",
    ),
    (r"must specify a region", "nothing says which region of AWS is meant", "set AWS_DEFAULT_REGION"),
    (r"acquiring the state lock", *BUSY),
    (r"went back to the former configuration", *ROLLED_BACK),
    (
        r"match\s+any\s+of\s+the\s+checksums|checksums\s+previously\s+recorded",
        "the AWS provider that is there is not the one whose hashes .terraform.lock.hcl has",
        "do not use it: get it again from Terraform's registry",
    ),
    (
        r"(query available provider packages|install provider|Inconsistent dependency lock|locked provider)",
        "terraform cannot get the AWS provider",
        "reach the network, or give a folder that has it: --plugins FOLDER",
    ),
    (
        r"connection refused|no such host|Could not connect|EndpointConnectionError|timed out",
        "AWS cannot be reached",
        "check the network, the region and --aws-endpoint",
    ),
)


def trouble(said: str, *, log: Path | None = None) -> FundoscopeError:
    """An error of AWS or Terraform, as one sentence and a hint."""
    for pattern, message, hint in TROUBLES:
        if match := re.search(pattern, said, re.IGNORECASE):
            return FundoscopeError(message.format(**match.groupdict()), hint)
    first = next((line.strip() for line in said.splitlines() if line.strip()), "nothing")
    return FundoscopeError(f"it did not work: {first[:300]}", f"all that was said is in {log}" if log else "")
