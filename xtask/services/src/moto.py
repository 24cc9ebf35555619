# moto with a lock: its threads share their data without one, and a request that fails undoes what others did meanwhile.
import os
import sys
import threading

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

port = int(sys.argv[1])
# moto reads its own port from there.
os.environ["MOTO_PORT"] = str(port)
lock, application = threading.Lock(), DomainDispatcherApplication(create_backend_app)


def one_at_a_time(environ, start_response):
    # A receive waits for messages, which others send meanwhile.
    if environ.get("HTTP_X_AMZ_TARGET", "").startswith("AmazonSQS."):
        return application(environ, start_response)
    with lock:
        return application(environ, start_response)


run_simple("127.0.0.1", port, one_at_a_time, threaded=True, request_handler=MotoRequestHandler)
