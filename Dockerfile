# satl in a container, with the versions that the tests run with:
#   docker build -t satl .
#   docker run --rm -v "$PWD":/data satl complete labels.csv --images photos -o completed
FROM python:3.12-slim

WORKDIR /opt/satl
# What the package is made of, and nothing else: a changed test or page does not install everything again.
COPY pyproject.toml setup.py constraints.txt README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir -c constraints.txt '.[web,onnx]'

# Not root: what satl writes into /data belongs to this user, or to that of `docker run --user`.
RUN useradd --create-home --uid 1000 satl && mkdir /data && chown satl /data
USER satl
WORKDIR /data
ENTRYPOINT ["satl"]
CMD ["--help"]
