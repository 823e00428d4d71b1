package org.apache.spark;

import java.io.PrintWriter;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;

/**
 * Counts what the threads of tasks are doing, at regular moments, until it is stopped.
 *
 * The Janino compiler has no generics, lambdas or varargs, so this uses none.
 */
public class StackSampler implements Runnable {

    private final long interval;
    private final Map counts = new HashMap();
    private volatile boolean running = true;
    private long moments = 0;
    private long began;

    public StackSampler(long interval) {
        this.interval = interval;
    }

    public void start() {
        Thread thread = new Thread(this, "stack-sampler");
        thread.setDaemon(true);
        this.began = System.nanoTime();
        thread.start();
    }

    public void run() {
        try {
            while (this.running) {
                Thread[] threads = new Thread[4 * Thread.activeCount()];
                int found = Thread.enumerate(threads);
                for (int number = 0; number < found; number++) {
                    if (threads[number].getName().startsWith("Executor task launch")) {
                        this.count(threads[number].getStackTrace());
                    }
                }
                this.moments++;
                Thread.sleep(this.interval);
            }
        } catch (InterruptedException end) {
            this.running = false;
        }
    }

    private synchronized void count(StackTraceElement[] stack) {
        StringBuffer names = new StringBuffer();
        for (int number = 0; number < stack.length; number++) {
            names.append(stack[number].getClassName()).append('.').append(stack[number].getMethodName()).append(';');
        }
        Object known = this.counts.get(names.toString());
        int before = known == null ? 0 : ((Integer) known).intValue();
        this.counts.put(names.toString(), Integer.valueOf(before + 1));
    }

    /** Stops, and writes the nanoseconds between two moments, and a line for each stack: how often it was seen. */
    public synchronized void stop(String path) throws Exception {
        this.running = false;
        PrintWriter file = new PrintWriter(path, "UTF-8");
        file.println((System.nanoTime() - this.began) / this.moments);
        for (Iterator stacks = this.counts.entrySet().iterator(); stacks.hasNext();) {
            Map.Entry entry = (Map.Entry) stacks.next();
            file.println(entry.getValue() + "\t" + entry.getKey());
        }
        file.close();
    }
}
